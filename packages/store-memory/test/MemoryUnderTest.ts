import { ChatArchive, ChatbotRegistry, ChatStore, TurnStore } from "@parley/core";
import { registerChatbot, StoreUnderTest } from "@parley/core/testing";
import { layerMemoryOf, type Memory } from "@parley/store-memory";
import { Context, Effect, Layer } from "effect";
import { TestClock } from "effect/testing";

/** A memory store with the needs of the checks besides the ports. Time is the time of the test clock. */
export const underTest = (memory: Memory) =>
  Layer.effect(
    StoreUnderTest,
    Effect.gen(function* () {
      const registry = yield* ChatbotRegistry;
      const other = yield* Layer.build(layerMemoryOf(memory));
      return StoreUnderTest.of({
        newChatbot: Effect.provideService(registerChatbot, ChatbotRegistry, registry),
        pass: (millis) => TestClock.adjust(millis),
        second: {
          chats: Context.get(other, ChatStore),
          turns: Context.get(other, TurnStore),
          archive: Context.get(other, ChatArchive),
          registry: Context.get(other, ChatbotRegistry),
        },
      });
    }),
  );
