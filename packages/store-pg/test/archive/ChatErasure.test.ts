import { assert, it } from "@effect/vitest";
import { defaultChatQuery } from "@parley/core";
import {
  type ChatId,
  type ChatbotId,
  ChatArchive,
  ChatbotRegistry,
  ChatStore,
  TurnStore,
} from "@parley/core/ports";
import { registerChatbot } from "@parley/core/testing";
import { layerPostgres } from "@parley/store-pg";
import { Effect, Fiber } from "effect";
import { makePools } from "../../src/connections/PgPools.ts";
import type { Session } from "../../src/connections/Session.ts";
import { inSchema, keyOf, takeFree, archiveOf } from "../fixtures.ts";
import { hold } from "../hold.ts";
import { clientOf, freshSchema, optionsOf } from "../PostgresUnderTest.ts";

const secret = "Zugspitzpanorama";
const entry = { question: secret, answer: secret, moderation: "none", flagged: false, usage: null };
const ofUser = { _tag: "UserRef", userRef: secret } as const;

/** Creates a chat for the user {@link secret}. */
const create = (chatbot: ChatbotId) =>
  ChatStore.use((chats) =>
    chats.createChat(
      chatbot,
      { name: secret, userRef: secret, helloMessage: secret },
      keyOf(`${secret} ${crypto.randomUUID()}`),
    ),
  );

const auditLines = ChatbotRegistry.use((registry) =>
  Effect.map(registry.audit(100), (lines) =>
    lines.flatMap(({ action, actor, detail }) => (action === "erase" ? [{ actor, detail }] : [])),
  ),
);

it.live(
  "an erasure leaves no text from its chats in any row, even if asks were in progress or killed",
  () =>
    inSchema(
      Effect.fnUntraced(function* (sql, schema) {
        const chatbot = yield* registerChatbot;
        const turns = yield* TurnStore;
        const take = (chat: ChatId, key: string | null) =>
          takeFree(chatbot, chat, key === null ? null : keyOf(key));
        for (let n = 0; n < 4; n++) {
          const { chat } = yield* create(chatbot);
          yield* turns.append(yield* take(chat.id, `${secret} ask ${n}`), entry);
          // An ask's process was killed, and another ask took over its turn.
          yield* take(chat.id, `${secret} killed ${n}`);
          for (const table of ["chat", "idempotency_key"]) {
            yield* sql.unsafe(
              `update ${table} set turn_until = now() where turn_until is not null`,
            );
          }
          const over = yield* take(chat.id, n % 2 === 0 ? null : `${secret} over ${n}`);
          if (n < 2) yield* turns.release(over);
        }
        // A visitor's asks without a chat: one failed, one was killed and one is in progress.
        const failed = yield* takeFree(chatbot, null, keyOf(`failed\n${secret}`));
        yield* turns.release(failed);
        yield* takeFree(chatbot, null, keyOf(`killed\n${secret}`));
        yield* sql.unsafe("update idempotency_key set turn_until = now() where key ~ '^killed'");
        yield* takeFree(chatbot, null, keyOf(`in progress\n${secret}`));
        assert.isAbove(yield* occurrences(sql, schema, secret), 0);
        const archive = yield* ChatArchive;
        assert.strictEqual(yield* archive.erase(chatbot, ofUser, "test"), 4);
        assert.strictEqual(yield* occurrences(sql, schema, secret), 0);
        assert.deepStrictEqual(yield* auditLines, [
          { actor: "test", detail: "4 chats of a userRef" },
        ]);
      }),
    ),
);

it.live(
  "the audit log records how many chats a failed erasure erased, and omits an erasure of no chats",
  () => {
    const options = optionsOf(freshSchema());
    return Effect.gen(function* () {
      const chatbot = yield* registerChatbot;
      const sql = yield* clientOf(options.schema);
      const pools = yield* makePools({ ...options, maxConnections: 6 });
      const { erase } = archiveOf(pools);
      assert.strictEqual(yield* erase(chatbot, ofUser, "nobody"), 0);
      yield* create(chatbot);
      yield* create(chatbot);
      // The second batch cannot be erased.
      yield* sql.unsafe(
        `insert into chat (chatbot_id, id, position, user_ref, create_time, entries)
      select $1, n, n, $2, now(), 0 from generate_series(3, 1001) n`,
        [chatbot, secret],
      );
      yield* sql.unsafe("update chat_counter set chats = 1001, positions = 1001");
      yield* sql.unsafe(`create function stop() returns trigger language plpgsql as $$ begin
      if old.position = 1001 then raise exception using errcode = '53100'; end if; return old; end $$`);
      yield* sql.unsafe(
        "create trigger stop before delete on chat for each row execute function stop()",
      );
      const failure = yield* Effect.flip(erase(chatbot, ofUser, "test"));
      assert.strictEqual(failure._tag, "StorageUnavailable");
      assert.deepStrictEqual(yield* auditLines, [
        { actor: "test", detail: "1000 chats of a userRef" },
      ]);
    }).pipe(Effect.provide(layerPostgres(options)), Effect.scoped);
  },
);

it.live("the audit log records an erasure that is interrupted while it commits", () =>
  inSchema(
    Effect.fnUntraced(function* (sql) {
      const chatbot = yield* registerChatbot;
      yield* create(chatbot);
      const archive = yield* ChatArchive;
      const counter = yield* hold(sql, "select from chat_counter for update", []);
      const erasing = yield* Effect.forkChild(archive.erase(chatbot, ofUser, "test"));
      yield* counter.awaited;
      erasing.interruptUnsafe();
      yield* counter.release;
      yield* Fiber.await(erasing);
      assert.deepStrictEqual(yield* sql.unsafe("select from chat"), []);
      assert.deepStrictEqual(yield* auditLines, [{ actor: "test", detail: "1 chat of a userRef" }]);
    }),
  ),
);

it.live("an erasure that is interrupted while it waits for a chat's lock ends at once", () =>
  inSchema(
    Effect.fnUntraced(function* (sql) {
      const chatbot = yield* registerChatbot;
      yield* create(chatbot);
      const archive = yield* ChatArchive;
      const chat = yield* hold(sql, "select from chat for update", []);
      const erasing = yield* Effect.forkChild(archive.erase(chatbot, ofUser, "test"));
      yield* chat.awaited;
      const interruptedAt = performance.now();
      yield* Fiber.interrupt(erasing);
      // The wait for the lock ends after a second.
      assert.isBelow(performance.now() - interruptedAt, 900);
      yield* chat.release;
      assert.lengthOf(yield* sql.unsafe("select id from chat"), 1);
      assert.deepStrictEqual(yield* auditLines, []);
    }),
  ),
);

it.live("an erasure deletes entries and keys that are changed while it waits for them", () =>
  inSchema(
    Effect.fnUntraced(function* (sql, schema) {
      const chatbot = yield* registerChatbot;
      const archive = yield* ChatArchive;
      for (const change of ["entry set rating = 'good'", "idempotency_key set made_at = now()"]) {
        yield* create(chatbot);
        const lock = yield* hold(sql, `update ${change}`, []);
        const erasure = yield* Effect.forkScoped(archive.erase(chatbot, ofUser, "test"));
        yield* lock.awaited;
        yield* lock.release;
        assert.strictEqual(yield* Fiber.join(erasure), 1);
        assert.strictEqual(yield* occurrences(sql, schema, secret), 0);
      }
    }),
  ),
);

it.live("an erasure takes the locks that block writers last", () => {
  const options = optionsOf(freshSchema());
  return Effect.gen(function* () {
    const chatbot = yield* registerChatbot;
    const pools = yield* makePools({ ...options, maxConnections: 6 });
    const [store, turns] = [yield* ChatStore, yield* TurnStore];
    const [creation, ask] = [keyOf("creation"), keyOf("ask")];
    const chat = { name: null, userRef: "u", helloMessage: null };
    const first = yield* store.createChat(chatbot, { ...chat, userRef: "v" }, creation);
    const turn = yield* takeFree(chatbot, first.chat.id, ask);
    const appended = yield* turns.append(turn, entry);
    // A write that had to wait for a lock would fail.
    const writers = Effect.gen(function* () {
      yield* store.createChat(chatbot, chat, null);
      const repeated = yield* store.createChat(chatbot, { ...chat, userRef: "v" }, creation);
      assert.deepStrictEqual(repeated, {
        ...first,
        replayed: true,
      });
      const done = yield* turns.take(chatbot, first.chat.id, ask);
      assert.deepStrictEqual(done._tag === "AlreadyAnswered" && done.entry, appended);
    });
    const erasureSession = Effect.map(pools.erasureSession, (session): Session => ({
      ...session,
      query: <Row extends object>(...statement: Parameters<Session["query"]>) =>
        Effect.andThen(
          /^select count.*idempotency_key/s.test(statement[1])
            ? Effect.orDie(writers)
            : Effect.void,
          session.query<Row>(...statement),
        ),
    }));
    const archive = archiveOf({ ...pools, erasureSession });
    assert.strictEqual(yield* archive.erase(chatbot, ofUser, "test"), 0);
    const which = { _tag: "UserRef", userRef: "v" } as const;
    assert.strictEqual(yield* archive.erase(chatbot, which, "test"), 1);
    assert.strictEqual((yield* store.listChats(chatbot, defaultChatQuery)).total, 1);
  }).pipe(Effect.provide(layerPostgres(options)), Effect.scoped);
});

it.live("an erasure of many chats completes even though more are created meanwhile", () => {
  const options = optionsOf(freshSchema());
  return Effect.gen(function* () {
    const chatbot = yield* registerChatbot;
    const pools = yield* makePools({ ...options, maxConnections: 6 });
    const store = yield* ChatStore;
    const chat = { name: null, userRef: "u", helloMessage: null };
    const create = store.createChat(chatbot, chat, null);
    const erasureSession = Effect.map(pools.erasureSession, (session): Session => ({
      ...session,
      transaction: (tenant, effect) =>
        Effect.tap(session.transaction(tenant, effect), () => Effect.orDie(create)),
    }));
    const archive = archiveOf({ ...pools, erasureSession });
    const later = new Date("2100-01-01");
    for (const which of [
      { _tag: "UserRef", userRef: "u" },
      { _tag: "IdleSince", limit: later },
    ] as const) {
      yield* Effect.repeat(create, { times: 2 });
      const { total } = yield* store.listChats(chatbot, defaultChatQuery);
      assert.strictEqual(yield* archive.erase(chatbot, which, "test"), total);
      assert.strictEqual((yield* store.listChats(chatbot, defaultChatQuery)).total, 1);
    }
  }).pipe(Effect.timeout("10 seconds"), Effect.provide(layerPostgres(options)), Effect.scoped);
});

/** Counts the rows in all tables that contain the string. */
const occurrences = Effect.fnUntraced(function* (
  sql: Effect.Success<ReturnType<typeof clientOf>>,
  schema: string,
  text: string,
) {
  const tables = yield* sql.unsafe<{ readonly tablename: string }>(
    "select tablename from pg_tables where schemaname = $1",
    [schema],
  );
  let count = 0;
  for (const { tablename } of tables) {
    const [row] = yield* sql.unsafe<{ readonly n: number }>(
      `select count(*)::int4 as n from ${tablename} t where t::text ilike $1`,
      [`%${text}%`],
    );
    count += row!.n;
  }
  return count;
});
