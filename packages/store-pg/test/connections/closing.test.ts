import { assert, it } from "@effect/vitest";
import { ChatStore, type ChatToCreate } from "@parley/core/ports";
import { registerChatbot } from "@parley/core/testing";
import { Effect, Exit, Fiber, Layer, Scope } from "effect";
import { bound, freshSchema, layerStore, optionsOf } from "../PostgresUnderTest.ts";

const chat: ChatToCreate = { name: "last", userRef: null, helloMessage: null };

for (const rowSecurity of [false, true]) {
  // The store has no connection yet, as after thirty idle seconds.
  it.live(
    `a store completes the creations in progress before it closes (row security: ${rowSecurity})`,
    () =>
      Effect.gen(function* () {
        const layer = layerStore({ ...optionsOf(freshSchema()), ...(rowSecurity && bound()) });
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
}
