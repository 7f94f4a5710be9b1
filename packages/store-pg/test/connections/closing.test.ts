import { assert, it } from "@effect/vitest";
import { ChatStore, type ChatToCreate } from "@parley/core/ports";
import { registerChatbot } from "@parley/core/testing";
import { layerPostgres } from "@parley/store-pg";
import { Effect, Exit, Fiber, Layer, Scope } from "effect";
import { freshSchema, optionsOf } from "../PostgresUnderTest.ts";

const chat: ChatToCreate = { name: "last", userRef: null, helloMessage: null };

// The store has no connection yet, as after thirty idle seconds.
it.live("a store completes the creations in progress before it closes", () =>
  Effect.gen(function* () {
    const layer = layerPostgres(optionsOf(freshSchema()));
    const chatbot = yield* Effect.provide(registerChatbot, Layer.fresh(layer));
    const scope = yield* Scope.make();
    const services = yield* Layer.buildWithScope(layer, scope);
    const store = yield* Effect.provideContext(ChatStore, services);
    const creating = yield* Effect.forkChild(store.createChat(chatbot, chat, null), {
      startImmediately: true,
    });
    yield* Effect.yieldNow;
    yield* Scope.close(scope, Exit.void);
    assert.strictEqual((yield* Fiber.join(creating)).chat.name, "last");
  }),
);
