import { ChatId, TurnStore } from "@parley/core/ports";
import { assert, it } from "@effect/vitest";
import { layerPostgres } from "@parley/store-pg";
import { Context, Effect } from "effect";
import type { SqlClient } from "effect/sql";
import { makePools } from "../src/connections/PgPools.ts";
import type { Session } from "../src/connections/Session.ts";
import { mostOf } from "./buffers.ts";
import { fillChats, filledChatbot as chatbot, fillEntries, settle } from "./fill.ts";
import { entry, keyOf, makeStore, takeFree, archiveOf } from "./fixtures.ts";
import { freshDatabase } from "./PostgresUnderTest.ts";

const rows = 50_000;
const most = 100;

/** Whether a statement is part of a transaction. */
const Inside = Context.Reference("Inside", { defaultValue: () => false });

/** Runs each statement twice: the first run is measured and rolled back. */
const measure = (session: Session, note: (text: string, buffers: number) => void): Session => {
  const transaction: Session["transaction"] = (tenant, effect) =>
    session.transaction(tenant, Effect.provideService(effect, Inside, true));
  const query: Session["query"] = (tenant, text, values) => {
    const whole = session.query<any>(tenant, text, values);
    // SET touches no buffers, and has no plan.
    if (text.startsWith("set ")) return whole;
    const explained = Effect.map(
      session.query<{ readonly "QUERY PLAN": any }>(
        tenant,
        `explain (analyze, buffers, format json) ${text}`,
        values,
      ),
      ([row]) => note(text, mostOf(row!["QUERY PLAN"][0].Plan)),
    );
    const undone = Effect.flatMap(Inside, (isInside) =>
      isInside
        ? Effect.gen(function* () {
            yield* session.query(tenant, "savepoint measured");
            yield* explained;
            yield* session.query(tenant, "rollback to savepoint measured");
          })
        : Effect.ignore(
            session.transaction(tenant, Effect.andThen(explained, Effect.fail("undone" as const))),
          ),
    );
    return Effect.andThen(undone, whole);
  };
  return { transaction, query };
};

it.live.each([
  ["", settle],
  // As if ANALYZE had last run when all chatbots were small.
  [
    ", even if the planner has no statistics on the large chatbot",
    (sql: SqlClient.SqlClient) =>
      Effect.forEach(
        ["vacuum idempotency_key", "vacuum analyze chat", "vacuum analyze entry"],
        (statement) => sql.unsafe(statement),
      ),
  ],
] as const)(
  "statements for creations, asks and erasures touch few buffers, however many rows and idempotency keys there are%s",
  ([, prepare]) =>
    Effect.gen(function* () {
      const { sql, url } = yield* freshDatabase();
      yield* Effect.provide(Effect.void, layerPostgres({ url }));
      yield* sql.unsafe("alter table idempotency_key set (autovacuum_enabled = off)");
      yield* sql.unsafe(
        `insert into chatbot (id, workspace_name, name, description, settings)
        overriding system value select n, 'w', n::text, '', '{}' from generate_series(1, 60) n`,
      );
      yield* sql.unsafe(
        `insert into idempotency_key (chatbot_id, key, fingerprint, made_at, chat_id)
        select n, 'key', 'f', now(), n from generate_series(1, 60) n`,
      );
      yield* sql.unsafe("analyze idempotency_key");
      yield* fillChats(sql, chatbot, rows);
      yield* fillEntries(sql, chatbot, rows);
      // Idempotency keys of creations, some of them expired, and of asks in progress.
      yield* sql.unsafe(
        `insert into idempotency_key (chatbot_id, key, fingerprint, made_at, turn, turn_until, chat_id)
        select $1, 'known ' || n, 'f', now() - n * interval '3 seconds', null, null, n from generate_series(1, $2::int8) n
        union all
        select $1, 'ask ' || n, 'f', now(), 'turn ' || n, now() + interval '1 hour', null from generate_series(1, 1000) n`,
        [chatbot, rows],
      );
      yield* prepare(sql);
      const pools = yield* makePools({ url, schema: "parley", maxConnections: 2 });
      const touched = new Map<string, Array<number>>();
      const note = (text: string, buffers: number) =>
        void touched.set(text, [...(touched.get(text) ?? []), buffers]);
      const measuredPools = {
        ...pools,
        reads: measure(pools.reads, note),
        writes: measure(pools.writes, note),
        erasureSession: Effect.map(pools.erasureSession, (session) => measure(session, note)),
      };
      const { createChat, turns } = yield* makeStore(measuredPools);
      const archive = archiveOf(measuredPools);
      const take = (...request: Parameters<typeof takeFree>) =>
        Effect.provideService(takeFree(...request), TurnStore, turns);
      const newChat = { name: "name", userRef: "user", helloMessage: "Hello" };
      for (let n = 0; n < 10; n++) {
        for (const isKeyed of [false, true]) {
          const creationKey = isKeyed ? keyOf(`chat ${n}`) : null;
          yield* createChat(chatbot, newChat, creationKey);
          yield* createChat(chatbot, newChat, creationKey);
          for (const chat of [ChatId.make(1), null]) {
            const idempotencyKey = isKeyed ? keyOf(`key ${n} of ${chat}`) : null;
            for (const end of ["release", "append"]) {
              const turn = yield* take(chatbot, chat, idempotencyKey);
              yield* turns.take(chatbot, chat, idempotencyKey);
              yield* turns.earlier(turn, rows / 2);
              yield* turns.renew(turn);
              yield* end === "append" ? turns.append(turn, entry) : turns.release(turn);
            }
            yield* turns.release({
              id: "none",
              chatbot,
              chatId: chat,
              idempotencyKey,
              chat: null,
              newest: [],
            });
          }
        }
      }
      for (let id = 100; id < 110; id++) {
        const lost =
          "update chat set turn = $3, turn_until = 'epoch' where chatbot_id = $1 and id = $2::int8";
        yield* sql.unsafe(lost, [chatbot, id, `turn ${id}`]);
        const chat = ChatId.make(id);
        yield* take(chatbot, chat);
        yield* archive.erase(chatbot, { _tag: "Chat", id: chat }, "test");
      }
      yield* archive.erase(chatbot, { _tag: "UserRef", userRef: "user 7" }, "test");
      // Occasionally, a statement has to merge the search index's pending list.
      for (const [text, counts] of touched) {
        const usual = counts.toSorted((a, b) => a - b)[Math.floor(counts.length / 2)]!;
        assert.isAtMost(usual, most, text);
        assert.isAtMost(Math.max(...counts), 10 * most, text);
      }
      assert.isAbove([...touched.values()].flat().length, 500);
    }).pipe(Effect.scoped),
);
