import { assert, describe, it } from "@effect/vitest";
import { ChatArchive, ChatStore, newestChats } from "@parley/core";
import { registerChatbot } from "@parley/core/testing";
import { layerPostgres } from "@parley/store-pg";
import { Deferred, Effect, Fiber, Stream } from "effect";
import { clientOf, freshSchema, optionsOf } from "./PostgresUnderTest.ts";

const chat = { name: "n", userRef: "u", helloMessage: "Hello" };
const list = (chatbot: number) => ChatStore.use((store) => store.listChats(chatbot, newestChats));

describe("locks", () => {
  it.live("of one chatbot make nobody else wait, and are not waited for long", () => {
    const schema = freshSchema();
    return Effect.gen(function* () {
      const [ours, theirs] = [yield* registerChatbot, yield* registerChatbot];
      const store = yield* ChatStore;
      yield* store.createChat(ours, chat, null);
      yield* store.createChat(theirs, chat, null);
      const sql = yield* clientOf(schema);
      const [locked, done] = [yield* Deferred.make<void>(), yield* Deferred.make<void>()];
      const holder = yield* Effect.forkChild(
        sql.withTransaction(
          Effect.gen(function* () {
            yield* sql.unsafe("select from tally where chatbot_id = $1 for update", [theirs]);
            yield* Deferred.succeed(locked, undefined);
            yield* Deferred.await(done);
          }),
        ),
      );
      yield* Deferred.await(locked);
      const waiting = yield* Effect.forkChild(Effect.exit(store.createChat(theirs, chat, null)));
      const keyed = yield* Effect.forkChild(
        Effect.exit(store.createChat(theirs, chat, { key: "key", fingerprint: "f" })),
      );
      yield* Effect.sleep("100 millis");
      for (let n = 0; n < 20; n++) {
        yield* list(ours).pipe(Effect.timeout("1 second"));
        yield* list(theirs).pipe(Effect.timeout("1 second"));
        yield* store.createChat(ours, chat, null).pipe(Effect.timeout("1 second"));
      }
      for (const exit of [yield* Fiber.join(waiting), yield* Fiber.join(keyed)]) {
        assert.strictEqual(exit._tag, "Failure");
        if (exit._tag === "Failure") {
          const [reason] = exit.cause.reasons;
          assert.strictEqual(reason?._tag === "Fail" && reason.error._tag, "Overloaded");
        }
      }
      yield* Deferred.succeed(done, undefined);
      yield* Fiber.join(holder);
      yield* store.createChat(theirs, chat, null);
      assert.strictEqual((yield* list(theirs)).total, 2);
    }).pipe(Effect.provide(layerPostgres(optionsOf(schema))), Effect.scoped);
  });

  it.live("of an erasure and of requests with keys that meet are sorted out", () =>
    Effect.gen(function* () {
      const chatbot = yield* registerChatbot;
      const store = yield* ChatStore;
      const archive = yield* ChatArchive;
      const create = (n: number) =>
        store.createChat(chatbot, chat, { key: `key ${n}`, fingerprint: "f" });
      const numbers = Array.from({ length: 150 }, (_, n) => n);
      for (let round = 0; round < 3; round++) {
        yield* Effect.forEach(numbers, create, { concurrency: 20 });
        const erasing = yield* Effect.forkChild(
          archive.erase(chatbot, { _tag: "UserRef", userRef: "u" }),
        );
        yield* Effect.forEach(numbers.toReversed(), create, { concurrency: 20 });
        yield* Fiber.join(erasing);
      }
      const { total } = yield* list(chatbot);
      const records = yield* Stream.runCollect(archive.export(chatbot));
      assert.strictEqual(records.filter(({ _tag }) => _tag === "Chat").length, total);
      assert.isAtMost(total, 150);
    }).pipe(Effect.provide(layerPostgres(optionsOf(freshSchema())))),
  );
});
