import { assert, it } from "@effect/vitest";
import { defaultChatQuery } from "@parley/core";
import {
  type ChatbotId,
  ChatArchive,
  ChatbotDirectory,
  ChatStore,
  TurnStore,
} from "@parley/core/ports";
import { registerChatbot } from "@parley/core/testing";
import { Cause, Effect, Exit, Fiber } from "effect";
import { layerPostgres } from "@parley/store-pg";
import { entry, inSchema, keyOf, takeFree } from "../fixtures.ts";
import { hold } from "../hold.ts";
import { freshDatabase, superuserIn } from "../PostgresUnderTest.ts";

const chat = { name: "n", userRef: "u", helloMessage: "Hello" };
const list = (chatbot: ChatbotId) =>
  ChatStore.use((store) => store.listChats(chatbot, defaultChatQuery));

inSchema(
  "a lock on one chatbot delays no other chatbot, and creations that wait for the lock time out",
  function* (sql) {
    const [ours, theirs] = [yield* registerChatbot, yield* registerChatbot];
    const [store, turns] = [yield* ChatStore, yield* TurnStore];
    yield* store.createChat(ours, chat, null);
    yield* store.createChat(theirs, chat, null);
    const lock = yield* hold(sql, "select from chat_counter where chatbot_id = $1 for update", [
      theirs,
    ]);
    const numbers = Array.from({ length: 50 }, (_, n) => n);
    const keyFor = (n: number) => (n % 2 === 0 ? null : keyOf(`key ${n}`));
    const creating = yield* Effect.forkChild(
      Effect.forEach(numbers, (n) => Effect.flip(store.createChat(theirs, chat, keyFor(n))), {
        concurrency: "unbounded",
      }),
    );
    const ask = (n: number) =>
      Effect.flatMap(takeFree(theirs, null, keyFor(100 + n)), (turn) => turns.append(turn, entry));
    const asking = yield* Effect.forkChild(
      Effect.forEach(numbers, ask, { concurrency: "unbounded" }),
    );
    yield* Effect.sleep("100 millis");
    for (let n = 0; n < 20; n++) {
      yield* list(ours);
      yield* list(theirs);
      yield* store.createChat(ours, chat, null);
    }
    for (const { _tag } of yield* Fiber.join(creating)) {
      assert.include(["Overloaded", "StorageUnavailable"], _tag);
    }
    // Appends are retried for longer than the lock is held.
    yield* lock.release;
    for (const { chatId } of yield* Fiber.join(asking)) assert.isNumber(chatId);
    yield* store.createChat(theirs, chat, null);
    assert.strictEqual((yield* list(theirs)).total, 52);
  },
);

inSchema(
  "a read that is aborted because of a deadlock with a migration is retried",
  function* (sql) {
    const chatbot = yield* registerChatbot;
    const directory = yield* ChatbotDirectory;
    for (const [first, second, read] of [
      ["chatbot", "api_key", Effect.asVoid(directory.find("A".repeat(12)))],
      ["chat", "chat_counter", Effect.asVoid(list(chatbot))],
    ] as const) {
      const reading = yield* sql.withTransaction(
        Effect.gen(function* () {
          yield* sql.unsafe(`lock table ${first} in access exclusive mode`);
          const fiber = yield* Effect.forkScoped(read);
          yield* Effect.sleep("50 millis");
          // The read has waited longer, so PostgreSQL aborts the read.
          yield* sql.unsafe(`lock table ${second} in access exclusive mode`);
          return fiber;
        }),
      );
      yield* Fiber.join(reading);
    }
  },
);

inSchema("many renewals in one chatbot do not hold up a renewal in another", function* (sql) {
  const [ours, theirs] = [yield* registerChatbot, yield* registerChatbot];
  const [store, turns] = [yield* ChatStore, yield* TurnStore];
  const { chat: ourChat } = yield* store.createChat(ours, chat, null);
  const our = yield* takeFree(ours, ourChat.id);
  const their = yield* takeFree(theirs, null, keyOf("key"));
  const lock = yield* hold(sql, "select from idempotency_key where chatbot_id = $1 for update", [
    theirs,
  ]);
  const served: Array<number> = [];
  // The first of these occupy all connections until the lock is released.
  const crowd = yield* Effect.forEach(Array.from({ length: 100 }), () =>
    Effect.forkChild(
      Effect.ensuring(
        Effect.exit(turns.renew(their)),
        Effect.sync(() => served.push(theirs)),
      ),
      { startImmediately: true },
    ),
  );
  yield* lock.awaited;
  const renewing = yield* Effect.forkChild(
    Effect.tap(turns.renew(our), () => Effect.sync(() => served.push(ours))),
    { startImmediately: true },
  );
  yield* lock.release;
  assert.isTrue(yield* Fiber.join(renewing));
  yield* Fiber.joinAll(crowd);
  assert.isBelow(served.indexOf(ours), 50);
});

it.live("an erasure, and a creation with an idempotency key, are retried after a deadlock", () =>
  Effect.gen(function* () {
    const { name, url } = yield* freshDatabase();
    const sql = yield* superuserIn(name);
    // PostgreSQL looks for deadlocks before a wait for a lock times out.
    yield* sql.unsafe(`alter database ${name} set deadlock_timeout = 500`);
    yield* Effect.gen(function* () {
      const chatbot = yield* registerChatbot;
      const { createChat } = yield* ChatStore;
      const { erase } = yield* ChatArchive;
      yield* createChat(chatbot, chat, keyOf("key"));
      yield* createChat(chatbot, chat, null);
      // Frees the key.
      yield* sql.unsafe("update idempotency_key set turn_until = 'epoch'");
      for (const [first, second, write] of [
        ["chat_counter", "idempotency_key", createChat(chatbot, chat, keyOf("key"))],
        [
          "chat where id = (select max(id) from chat)",
          "chat where id = (select min(id) from chat)",
          erase(chatbot, { _tag: "UserRef", userRef: "u" }, "test"),
        ],
      ] as const) {
        const writing = yield* sql.withTransaction(
          Effect.gen(function* () {
            yield* sql.unsafe(`select from ${first} for update`);
            const fiber = yield* Effect.forkScoped(write);
            yield* sql
              .unsafe("select from pg_locks where pg_backend_pid() = any (pg_blocking_pids(pid))")
              .pipe(Effect.repeat({ until: (rows) => rows.length > 0 }));
            // The write has waited longer, so PostgreSQL aborts the write.
            yield* sql.unsafe(`select from ${second} for update`);
            return fiber;
          }),
        );
        yield* Fiber.join(writing);
      }
      assert.strictEqual((yield* list(chatbot)).total, 0);
    }).pipe(Effect.provide(layerPostgres({ url })));
  }).pipe(Effect.scoped),
);

inSchema("no answer is lost because a frozen process has locked its chat", function* (sql) {
  const chatbot = yield* registerChatbot;
  const [store, turns] = [yield* ChatStore, yield* TurnStore];
  const { chat: lockedChat } = yield* store.createChat(chatbot, chat, null);
  const turn = yield* takeFree(chatbot, lockedChat.id);
  const lock = yield* hold(sql, "select from chat for update", []);
  // PostgreSQL ends a frozen process's transaction after 5 s.
  const appending = yield* Effect.forkChild(turns.append(turn, entry));
  yield* Effect.sleep("5 seconds");
  yield* lock.release;
  assert.strictEqual((yield* Fiber.join(appending)).chatId, lockedChat.id);
  yield* turns.release(yield* takeFree(chatbot, lockedChat.id));
});

inSchema(
  "an erasure that waits for a lock retries, delays no creation, and keeps a chat that is used in the meantime",
  function* (sql) {
    const chatbot = yield* registerChatbot;
    const [store, turns] = [yield* ChatStore, yield* TurnStore];
    const archive = yield* ChatArchive;
    const create = Effect.map(store.createChat(chatbot, chat, null), ({ chat }) => chat);
    // Chats for the batches before the locked chat.
    yield* sql.unsafe(
      `insert into chat (chatbot_id, id, position, create_time, entries)
        select $1, nextval('chat_id'), n, 'epoch', 0 from generate_series(1, 2500) n`,
      [chatbot],
    );
    yield* sql.unsafe(
      "insert into chat_counter (chatbot_id, chats, positions, last_time) values ($1, 2500, 2500, 'epoch')",
      [chatbot],
    );
    const [lockedChat, usedChat] = [yield* create, yield* create];
    const limit = new Date(usedChat.createTime.getTime() + 1);
    const lock = yield* hold(
      sql,
      "select from chat where chatbot_id = $1 and id = $2::int8 for update",
      [chatbot, lockedChat.id],
    );
    const erasing = yield* Effect.forkChild(
      archive.erase(chatbot, { _tag: "IdleSince", limit }, "test"),
    );
    yield* lock.awaited;
    yield* sql
      .unsafe("select where clock_timestamp() >= $1::timestamptz", [limit])
      .pipe(Effect.repeat({ until: (rows) => rows.length > 0 }));
    // The erasure has found both chats, and is waiting for the lock on the first.
    const created = yield* create;
    const turn = yield* takeFree(chatbot, usedChat.id);
    yield* turns.append(turn, entry);
    // Longer than a single attempt by the erasure waits.
    yield* Effect.sleep("1500 millis");
    yield* lock.release;
    assert.strictEqual(yield* Fiber.join(erasing), 2501);
    assert.deepStrictEqual(yield* list(chatbot), { total: 2, items: [created, usedChat] });
  },
);

inSchema("no writer waits for an erasure's locks", function* (sql) {
  const chatbot = yield* registerChatbot;
  const [store, turns] = [yield* ChatStore, yield* TurnStore];
  const create = Effect.map(store.createChat(chatbot, chat, null), ({ chat }) => chat.id);
  const [other, doomed, free] = [yield* create, yield* create, yield* create];
  const turn = yield* takeFree(chatbot, doomed, keyOf("key"));
  const elsewhere = yield* takeFree(chatbot, other);
  const lock = yield* hold(sql, "delete from chat where chatbot_id = $1 and id = $2::int8", [
    chatbot,
    doomed,
  ]);
  const atOnce = Effect.gen(function* () {
    yield* create;
    yield* store.createChat(chatbot, chat, keyOf("another"));
    yield* takeFree(chatbot, free, keyOf("third"));
    const takeResult = yield* turns.take(chatbot, doomed, null);
    assert.deepStrictEqual(takeResult, { _tag: "Held", by: "chat", forMillis: 50 });
    assert.isTrue(yield* turns.renew(turn));
    yield* turns.append(elsewhere, entry);
    yield* list(chatbot);
  });
  // More appends than there are connections.
  const appending = yield* Effect.forEach(Array.from({ length: 20 }), () =>
    Effect.forkChild(Effect.exit(turns.append(turn, entry))),
  );
  yield* Effect.raceFirst(atOnce, Effect.andThen(lock.awaited, Effect.die("a writer waits")));
  yield* lock.release;
  for (const exit of yield* Fiber.joinAll(appending)) {
    assert.strictEqual(
      Exit.isFailure(exit) && (Cause.squash(exit.cause) as any)._tag,
      "ChatNotFound",
    );
  }
});
