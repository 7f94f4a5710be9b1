import { assert } from "@effect/vitest";
import { defaultChatQuery, plainKey } from "@parley/core";
import {
  ChatId,
  ChatArchive,
  ChatbotRegistry,
  ChatStore,
  type ArchiveRecord,
} from "@parley/core/ports";
import { registerChatbot } from "@parley/core/testing";
import { Deferred, Effect, Fiber, Latch, Stream } from "effect";
import { createHash } from "node:crypto";
import { inSchema, keyOf } from "../fixtures.ts";

inSchema("a chatbot can be changed while an import runs", function* () {
  const [registry, archive, store] = [yield* ChatbotRegistry, yield* ChatArchive, yield* ChatStore];
  const id = yield* registerChatbot;
  const importStarted = yield* Deferred.make<void>();
  const gate = yield* Latch.make(false);
  const chat = (id: number): ArchiveRecord => ({
    _tag: "Chat",
    chat: { id: ChatId.make(id), name: null, userRef: null, createTime: new Date(id) },
  });
  const last = Effect.as(
    Effect.andThen(Deferred.succeed(importStarted, undefined), gate.await),
    chat(3001),
  );
  const records = Stream.concat(
    Stream.fromIterable(Array.from({ length: 3000 }, (_, n) => chat(n + 1))),
    Stream.fromEffect(last),
  );
  const importing = yield* Effect.forkChild(archive.import(id, records, "test"));
  yield* Deferred.await(importStarted);
  const changed = yield* registry.change(id, { settings: { helloMessage: "Hi" } }, "test");
  assert.strictEqual(changed.settings.helloMessage, "Hi");
  yield* registry.change(id, { name: `Renamed ${id}` }, "test");
  const key = { id: "key", hash: new Uint8Array(32), scopes: ["read"] as const, ...plainKey };
  yield* registry.addKey(id, key, "test");
  yield* gate.open;
  assert.strictEqual(yield* Fiber.join(importing), 3001);
  assert.strictEqual((yield* store.listChats(id, defaultChatQuery)).total, 3001);
});

inSchema(
  "PostgreSQL itself finds a user's entries in the audit log, whatever the limit",
  function* () {
    const registry = yield* ChatbotRegistry;
    const id = yield* registerChatbot;
    const digestOf = (salt: string, userRef: string) =>
      `sha256:${salt}:${createHash("sha256").update(`${salt}:${userRef}`).digest("hex")}`;
    const salts = ["0".repeat(32), "a".repeat(32), "b".repeat(32)];
    const details = ["Zoë", "sha256:", "O'Neil"].flatMap((userRef) =>
      salts.map((salt) => [userRef, `a userRef ${digestOf(salt, userRef)}`] as const),
    );
    for (const [, detail] of details) yield* registry.record(id, "read", detail, "test");
    for (const userRef of ["Zoë", "sha256:", "O'Neil", "Zo"]) {
      const log = yield* registry.audit(1, userRef);
      const own = details.filter(([user]) => user === userRef).map(([, detail]) => detail);
      assert.deepStrictEqual(log.map(({ detail }) => detail).toReversed(), own);
    }
  },
);

inSchema("a deleted chatbot leaves rows only in the audit log", function* (sql) {
  const [registry, store] = [yield* ChatbotRegistry, yield* ChatStore];
  const id = yield* registerChatbot;
  const chat = { name: "n", userRef: "u", helloMessage: "Hello" };
  yield* store.createChat(id, chat, keyOf("key"));
  yield* registry.delete(id, "test");
  const tables = yield* sql.unsafe<{ readonly name: string }>(
    `select table_name as name from information_schema.columns
        where table_schema = current_schema() and column_name = 'chatbot_id'`,
  );
  assert.isAbove(tables.length, 4);
  for (const { name } of tables) {
    const rows = yield* sql.unsafe(`select from ${name} where chatbot_id = ${id}`);
    assert.strictEqual(rows.length > 0, name === "audit", name);
  }
  const created = yield* Effect.flip(store.createChat(id, chat, null));
  assert.strictEqual(created._tag, "ChatbotNotFound");
});
