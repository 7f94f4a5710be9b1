/**
 * A connection keeps the plans that it made while the tables were small. Even with those plans, the statements for asks,
 * creations and erasures must touch few buffers.
 */
import { assert, it } from "@effect/vitest";
import { ChatId, type IdempotencyKey, type Turn } from "@parley/core/ports";
import { migratePostgres } from "@parley/store-pg";
import { Effect } from "effect";
import type { SqlClient } from "effect/sql";
import { makeErasure } from "../src/archive/ChatErasure.ts";
import { makePools, type PgPools } from "../src/connections/PgPools.ts";
import type { Session, Statement } from "../src/connections/Session.ts";
import { literal, mostOf } from "./buffers.ts";
import { fillChats, fillEntries, filledChatbot as chatbot, settle } from "./fill.ts";
import { entry, makeStore } from "./fixtures.ts";
import { freshDatabase } from "./PostgresUnderTest.ts";

const rows = 15_000;
const keyOf = (n: number): IdempotencyKey => ({ key: `key ${n}`, fingerprint: "f" });
/** The key of an ask that has been answered. */
const doneKeyOf = (n: number): IdempotencyKey => ({ key: `done ${n}`, fingerprint: "f" });

/**
 * Captures the statements for takes, replays, appends, renewals, releases and creations, with and without keys, for
 * pages of earlier entries, and for the erasure of a chat. Takes, appends and creations are captured singly and in
 * batches of eight.
 */
const statementsOf = Effect.fnUntraced(function* (pools: PgPools) {
  const statements: Array<Statement & { readonly items: number }> = [];
  let items = 1;
  let isErasure = false;
  const session: Session = {
    ...pools.writes,
    query: (_, text, values = []) => {
      statements.push({ text, values, items });
      if (isErasure) return Effect.succeed([{ id: 1000n, position: 1000n } as never]);
      // The claim of keys precedes the insertion of chats.
      return text.endsWith("select from claimed") ? Effect.succeed([]) : Effect.interrupt;
    },
    transaction: (_, effect) => effect,
  };
  const capturingPools = { ...pools, reads: session, writes: session };
  const { createChat, turns } = yield* makeStore(capturingPools);
  const run = (work: ReadonlyArray<Effect.Effect<unknown, unknown>>) =>
    Effect.forEach(work, Effect.exit, { concurrency: "unbounded" });
  const turn = (n: number, isKeyed: boolean): Turn => ({
    id: `turn ${n}`,
    chatbot,
    chatId: ChatId.make(n),
    idempotencyKey: isKeyed ? keyOf(n) : null,
    chat: null,
    newest: [],
  });
  const chat = { name: "name", userRef: "user", helloMessage: "Hello" };
  for (const isKeyed of [false, true]) {
    for (items of [1, 8]) {
      const numbers = Array.from({ length: items }, (_, n) => 1000 + n);
      yield* run(numbers.map((n) => turns.append(turn(n, isKeyed), entry)));
      const free = numbers.map((n) => n + 1000);
      yield* run(free.map((n) => turns.take(chatbot, ChatId.make(n), isKeyed ? keyOf(n) : null)));
      yield* run(free.map((n) => turns.take(chatbot, null, keyOf(n))));
      yield* run(free.map((n) => turns.take(chatbot, ChatId.make(n), doneKeyOf(n))));
      yield* run(free.map((n) => createChat(chatbot, chat, isKeyed ? keyOf(n) : null)));
    }
    items = 1;
    yield* run([turns.renew(turn(1000, isKeyed))]);
    yield* run([turns.release(turn(1000, isKeyed))]);
    yield* run([turns.release(turn(1000, isKeyed), { apiKeyId: "k", tokens: 1 })]);
  }
  yield* run([turns.earlier(turn(1000, false), Number.MAX_SAFE_INTEGER)]);
  yield* run([turns.earlier(turn(1000, false), 1000)]);
  isErasure = true;
  // Other erasures plan their statements anew, on a connection of their own.
  yield* makeErasure(capturingPools)(chatbot, { _tag: "Chat", id: ChatId.make(1000) }, () => {});
  return statements;
});

/** Inserts a large chatbot, with chats and keys that are held by turns, and with old keys. */
const fill = (sql: SqlClient.SqlClient) =>
  Effect.gen(function* () {
    yield* fillChats(sql, chatbot, rows);
    yield* fillEntries(sql, chatbot, rows);
    yield* sql.unsafe(
      `update chat set turn = 'turn ' || id, turn_until = now() + interval '1 hour'
      where chatbot_id = $1 and id between 1000 and 1999`,
      [chatbot],
    );
    yield* sql.unsafe(
      `insert into idempotency_key (chatbot_id, key, fingerprint, made_at, turn, turn_until, chat_id)
      select $1, 'key ' || n, 'f', now(), 'turn ' || n, now() + interval '1 hour', null::int8 from generate_series(1000, 1999) n
      union all
      select $1, 'done ' || n, 'f', now(), 'turn ' || n, null, n from generate_series(2000, 2999) n
      union all
      select $1, 'old ' || n, 'f', now() - n * interval '1 minute', null, null, n from generate_series(1, $2::int8) n`,
      [chatbot, rows],
    );
  });

const small = (sql: SqlClient.SqlClient) =>
  Effect.gen(function* () {
    yield* sql.unsafe(
      `insert into chatbot (id, workspace_name, name, description, settings)
      overriding system value select n, 'w', n::text, '', '{}' from generate_series(1, 60) n`,
    );
    yield* sql.unsafe(
      `insert into chat (chatbot_id, id, position, create_time, entries)
      select n, n, 1, 'epoch', 1 from generate_series(1, 60) n`,
    );
    yield* sql.unsafe(
      `insert into entry (chatbot_id, chat_id, id, position, question, answer, moderation, flagged, create_time)
      select n, n, n, 1, '', '', '', false, 'epoch' from generate_series(1, 60) n`,
    );
    yield* sql.unsafe(
      `insert into idempotency_key (chatbot_id, key, fingerprint, made_at, chat_id)
      select n, 'key', 'f', now(), n from generate_series(1, 60) n`,
    );
  });

const ages: Readonly<
  Record<string, (sql: SqlClient.SqlClient) => Effect.Effect<unknown, unknown>>
> = {
  "that are new": () => Effect.void,
  "with one row for each chatbot": (sql) => Effect.andThen(small(sql), settle(sql)),
};

it.live.each(Object.entries(ages))(
  "statements for asks, creations and erasures that were planned for tables %s touch few buffers once the tables are large",
  ([_, arrange]) =>
    Effect.gen(function* () {
      const { sql, url } = yield* freshDatabase();
      yield* migratePostgres({ url });
      const pools = yield* makePools({ url, schema: "parley", maxConnections: 6 });
      yield* pools.writes.query("operator", "select advance_sequences(true)");
      yield* arrange(sql);
      const statements = yield* statementsOf(pools);
      const settings = yield* pools.writes.query<{ readonly set: string }>(
        "operator",
        `select format('set %I = %L', name, setting) as set from pg_settings
        where source = 'client' and context = 'user' and (name ~ '^enable_' or name = 'plan_cache_mode')`,
      );
      const touched = yield* sql.withTransaction(
        Effect.gen(function* () {
          for (const { set } of settings) yield* sql.unsafe(set);
          const explain = (how: string, { values }: Statement, n: number) =>
            sql.unsafe<{ readonly "QUERY PLAN": any }>(
              `explain (${how} format json) execute statement_${n}(${values.map(literal).join()})`,
            );
          for (const [n, statement] of statements.entries()) {
            yield* sql.unsafe(`prepare statement_${n} as ${statement.text}`);
            yield* explain("", statement, n);
          }
          yield* fill(sql);
          return yield* Effect.forEach(statements, (statement, n) =>
            Effect.gen(function* () {
              const execution = Effect.gen(function* () {
                yield* sql.unsafe("savepoint executed");
                const [row] = yield* explain("analyze, buffers,", statement, n);
                yield* sql.unsafe("rollback to savepoint executed");
                return mostOf(row!["QUERY PLAN"][0].Plan);
              });
              // The first execution also reads the system catalog.
              return Math.min(yield* execution, yield* execution);
            }),
          );
        }),
      );
      for (const [n, { items, text }] of statements.entries()) {
        assert.isAtMost(touched[n]!, 60 + 40 * items, text);
      }
      assert.isAbove(statements.length, 35);
    }).pipe(Effect.scoped),
  60_000,
);
