import { ChatArchive, ChatbotRegistry, ChatStore, TurnStore } from "@parley/core";
import { registerChatbot, StoreUnderTest } from "@parley/core/testing";
import type { Memory } from "@parley/store-memory";
import { Effect, Layer } from "effect";
import { TestClock } from "effect/testing";

/** What the checks need of a memory store; time passes by the test clock. */
export const underTest = (memory: Memory) =>
  Layer.effect(
    StoreUnderTest,
    Effect.gen(function* () {
      const registry = yield* ChatbotRegistry;
      return StoreUnderTest.of({
        newChatbot: Effect.provideService(registerChatbot, ChatbotRegistry, registry),
        peek: (chatbot) =>
          Effect.sync(() =>
            memory.tenant(chatbot).chats.map(({ createTime, entries, id, name, userRef }) => ({
              id,
              name,
              userRef,
              createTime,
              entries: entries.map(({ chatId: _, ...entry }) => entry),
            })),
          ),
        pass: (millis) => TestClock.adjust(millis),
        second: {
          chats: yield* ChatStore,
          turns: yield* TurnStore,
          archive: yield* ChatArchive,
          registry,
        },
      });
    }),
  );
