import { assert, describe, it } from "@effect/vitest";
import { ChatStore, TurnStore } from "@parley/core";
import { registerChatbot } from "@parley/core/testing";
import { layerPostgres } from "@parley/store-pg";
import { Context, Effect, Fiber, Layer, Stream } from "effect";
import { freshSchema, optionsOf } from "./PostgresUnderTest.ts";

describe("the line of a chat", () => {
  it.live("hints to the next when who came before leaves it", () => {
    const schema = freshSchema();
    const another = Effect.map(
      Layer.build(Layer.fresh(layerPostgres(optionsOf(schema)))),
      (built) => Context.get(built, TurnStore),
    );
    return Effect.gen(function* () {
      const chatbot = yield* registerChatbot;
      const { chat } = yield* ChatStore.use((store) =>
        store.createChat(chatbot, { name: null, userRef: null, helloMessage: null }, null),
      );
      const [first, second, third] = [yield* TurnStore, yield* another, yield* another];
      const hinted = third.freed.pipe(
        // `null`: it listens only now.
        Stream.filter((hint) => hint === null || hint.chat === chat.id),
        Stream.take(1),
        Stream.runDrain,
        Effect.timeout("10 seconds"),
      );
      const taken = yield* first.take(chatbot, chat.id, null);
      if (taken._tag !== "Turn") return assert.fail("the turn is free");
      for (const other of [second, third]) yield* other.take(chatbot, chat.id, null);
      const freed = yield* Effect.forkChild(hinted, { startImmediately: true });
      yield* first.release(taken.turn);
      yield* Fiber.join(freed);
      assert.strictEqual((yield* third.take(chatbot, chat.id, null))._tag, "Held");
      const left = yield* Effect.forkChild(hinted, { startImmediately: true });
      yield* second.leave(chatbot, chat.id);
      yield* Fiber.join(left);
      assert.strictEqual((yield* third.take(chatbot, chat.id, null))._tag, "Turn");
    }).pipe(Effect.provide(layerPostgres(optionsOf(schema))), Effect.scoped);
  });
});
