import { assert } from "@effect/vitest";
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
import { Effect, Fiber } from "effect";
import { noResponseError } from "../../src/connections/Deadlines.ts";
import { makePools } from "../../src/connections/PgPools.ts";
import type { Session } from "../../src/connections/Session.ts";
import { fillChats, filledChatbot } from "../fill.ts";
import { archiveOf, bare, inSchema, keyOf, takeFree } from "../fixtures.ts";
import { hold } from "../hold.ts";
import { optionsOf, type clientOf } from "../PostgresUnderTest.ts";

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

/** The archive of a store whose erasures use a changed session. */
const archiveWith = (schema: string, change: (session: Session) => Partial<Session>) =>
  Effect.map(makePools({ ...optionsOf(schema), maxConnections: 6 }), (pools) => {
    const withChange = (session: Session) => ({ ...session, ...change(session) });
    return archiveOf({ ...pools, erasureSession: Effect.map(pools.erasureSession, withChange) });
  });

const auditLines = ChatbotRegistry.use((registry) =>
  Effect.map(registry.audit(100), (lines) =>
    lines.flatMap(({ action, actor, detail }) => (action === "erase" ? [{ actor, detail }] : [])),
  ),
);

inSchema(
  "an erasure leaves no text from its chats in any row, even if asks were in progress or killed",
  function* (sql, schema) {
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
        yield* sql.unsafe(`update ${table} set turn_until = now() where turn_until is not null`);
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
    assert.deepStrictEqual(yield* auditLines, [{ actor: "test", detail: "4 chats of a userRef" }]);
  },
);

inSchema(
  "the audit log records how many chats a failed erasure erased, and omits an erasure of no chats",
  function* (sql, schema) {
    yield* fillChats(sql, filledChatbot, 1_001);
    let batches = 0;
    const { erase } = yield* archiveWith(schema, ({ transaction }) => ({
      transaction: (...values) =>
        ++batches === 2 ? Effect.fail(noResponseError) : transaction(...values),
    }));
    assert.strictEqual(yield* erase(filledChatbot, ofUser, "nobody"), 0);
    const failure = yield* Effect.flip(erase(filledChatbot, { _tag: "All" }, "test"));
    assert.strictEqual(failure._tag, "StorageUnavailable");
    assert.deepStrictEqual(yield* auditLines, [{ actor: "test", detail: "1000 chats" }]);
  },
);

inSchema("the audit log records an erasure that is interrupted while it commits", function* (sql) {
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
});

inSchema(
  "an erasure that is interrupted while it waits for a chat's lock ends at once",
  function* (sql) {
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
  },
);

inSchema(
  "an erasure deletes entries and keys that are changed while it waits for them",
  function* (sql, schema) {
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
  },
);

inSchema("an erasure takes the locks that block writers last", function* (_, schema) {
  const chatbot = yield* registerChatbot;
  const [store, turns] = [yield* ChatStore, yield* TurnStore];
  const [creation, ask] = [keyOf("creation"), keyOf("ask")];
  const chat = { ...bare, userRef: "v" };
  const first = yield* store.createChat(chatbot, chat, creation);
  const turn = yield* takeFree(chatbot, first.chat.id, ask);
  const appended = yield* turns.append(turn, entry);
  // A write that had to wait for a lock would fail.
  const writers = Effect.gen(function* () {
    yield* store.createChat(chatbot, bare, null);
    const repeated = yield* store.createChat(chatbot, chat, creation);
    assert.deepStrictEqual(repeated, { ...first, replayed: true });
    const done = yield* turns.take(chatbot, first.chat.id, ask);
    assert.deepStrictEqual(done._tag === "AlreadyAnswered" && done.entry, appended);
  });
  const { erase } = yield* archiveWith(schema, ({ query }) => ({
    query: <Row extends object>(...statement: Parameters<Session["query"]>) =>
      Effect.andThen(
        Effect.when(
          Effect.orDie(writers),
          Effect.succeed(/^select count.*idempotency_key/s.test(statement[1])),
        ),
        query<Row>(...statement),
      ),
  }));
  assert.strictEqual(yield* erase(chatbot, ofUser, "test"), 0);
  assert.strictEqual(yield* erase(chatbot, { _tag: "UserRef", userRef: "v" }, "test"), 1);
  assert.strictEqual((yield* store.listChats(chatbot, defaultChatQuery)).total, 1);
});

inSchema(
  "an erasure of many chats completes even though more are created meanwhile",
  function* (_, schema) {
    const chatbot = yield* registerChatbot;
    const store = yield* ChatStore;
    const create = store.createChat(chatbot, { ...bare, userRef: "u" }, null);
    const { erase } = yield* archiveWith(schema, ({ transaction }) => ({
      transaction: (...values) => Effect.tap(transaction(...values), () => Effect.orDie(create)),
    }));
    for (const which of [
      { _tag: "UserRef", userRef: "u" },
      { _tag: "IdleSince", limit: new Date("2100-01-01") },
    ] as const) {
      yield* Effect.repeat(create, { times: 2 });
      const { total } = yield* store.listChats(chatbot, defaultChatQuery);
      assert.strictEqual(yield* erase(chatbot, which, "test"), total);
      assert.strictEqual((yield* store.listChats(chatbot, defaultChatQuery)).total, 1);
    }
  },
  10_000,
);

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
