import { layer } from "@effect/vitest";
import { ChatbotRegistry, ChatStore, TurnStore } from "@parley/core";
import { registerChatbot, storeChecks, StoreUnderTest } from "@parley/core/testing";
import { layerMemoryOf, makeMemory } from "@parley/store-memory";
import { Effect, Layer } from "effect";
import { TestClock } from "effect/testing";

const memory = makeMemory();

const underTest = Layer.effect(
  StoreUnderTest,
  Effect.gen(function* () {
    const registry = yield* ChatbotRegistry;
    return StoreUnderTest.of({
      newChatbot: Effect.provideService(registerChatbot, ChatbotRegistry, registry),
      peek: (chatbot) => Effect.sync(() => memory.tenant(chatbot).chats.map(stored)),
      pass: (millis) => TestClock.adjust(millis),
      second: { chats: yield* ChatStore, turns: yield* TurnStore },
    });
  }),
);

const stored = ({ createTime, entries, id, name, userRef }: StoredChat) => ({
  id,
  name,
  userRef,
  createTime,
  entries: entries.map(({ chatId: _, ...entry }) => entry),
});
type StoredChat = ReturnType<typeof memory.tenant>["chats"][number];

layer(Layer.provideMerge(underTest, layerMemoryOf(memory)))("memory store", (it) => {
  for (const { name, run } of storeChecks) it.effect(name, () => run);
});
