import { assert, it } from "@effect/vitest";
import { defaultSettings } from "@parley/core";
import {
  ChatbotId,
  type ChatId,
  ChatArchive,
  ChatbotRegistry,
  ChatStore,
  TurnStore,
} from "@parley/core/ports";
import { registerChatbot, rowsChecks } from "@parley/core/testing";
import { layerMemory, layerMemoryOf, layerMemoryWith, makeMemory } from "@parley/store-memory";
import { Effect } from "effect";
import { TestClock } from "effect/testing";
import { inspect } from "node:util";
import { makeRows } from "../src/MemoryRows.ts";

const bare = { name: null, userRef: null, helloMessage: null };

it.effect("creation times do not go back with the clock, even if the newest chat is erased", () =>
  Effect.gen(function* () {
    const chats = yield* ChatStore;
    const chatbot = yield* registerChatbot;
    const create = Effect.map(chats.createChat(chatbot, bare, null), ({ chat }) => chat);
    yield* TestClock.setTime(1_000);
    const { id } = yield* create;
    yield* ChatArchive.use((archive) => archive.erase(chatbot, { _tag: "Chat", id }, "somebody"));
    yield* TestClock.setTime(500);
    assert.strictEqual((yield* create).createTime.getTime(), 1_000);
  }).pipe(Effect.provide(layerMemory)),
);

it.effect("erasing a user leaves none of the user's text in memory", () => {
  const secret = "Zugspitzpanorama";
  const memory = makeMemory();
  const hasSecret = () => inspect(memory, { depth: Infinity }).includes(secret);
  return Effect.gen(function* () {
    const chatbot = yield* registerChatbot;
    const turns = yield* TurnStore;
    const take = Effect.fnUntraced(function* (chat: ChatId | null, name: string) {
      const key = { key: `${name}\n${secret}`, fingerprint: "f" };
      const result = yield* turns.take(chatbot, chat, key, secret);
      return result._tag === "TurnTaken" ? result.turn : assert.fail("the turn is free");
    });
    const texts = { name: secret, userRef: secret, helloMessage: secret };
    const { chat } = yield* ChatStore.use((store) => store.createChat(chatbot, texts, null));
    yield* turns.release(yield* take(chat.id, "failed in a chat"));
    yield* turns.release(yield* take(null, "failed"));
    yield* take(chat.id, "in progress in a chat");
    yield* take(null, "in progress");
    assert.isTrue(hasSecret());
    const which = { _tag: "UserRef", userRef: secret } as const;
    yield* ChatArchive.use((archive) => archive.erase(chatbot, which, "somebody"));
    assert.isFalse(hasSecret());
  }).pipe(Effect.provide(layerMemoryOf(memory)));
});

it.effect("a later process does not reuse the turn ids of an earlier one", () =>
  Effect.gen(function* () {
    const first = TurnStore.use(({ take }) => take(ChatbotId.make(1), null, null)).pipe(
      Effect.provide(layerMemory, { local: true }),
    );
    const ids = yield* Effect.forEach([first, first], (take) =>
      Effect.map(take, (result) => (result._tag === "TurnTaken" ? result.turn.id : null)),
    );
    assert.notStrictEqual(ids[0], ids[1]);
  }),
);

it.effect(
  "a memory store that starts with chatbots serves them, and gives later chatbots higher ids",
  () => {
    const chatbot = {
      id: ChatbotId.make(7),
      workspaceName: "W",
      name: "first",
      description: "",
      settings: defaultSettings,
    };
    return Effect.gen(function* () {
      yield* ChatStore.use((chats) => chats.createChat(chatbot.id, bare, null));
      assert.strictEqual(yield* registerChatbot, 8);
      const listed = yield* ChatbotRegistry.use((registry) => registry.list);
      assert.deepStrictEqual(listed[0], { chatbot, keys: [] });
    }).pipe(Effect.provide(layerMemoryWith([chatbot])));
  },
);

for (const { name, run } of rowsChecks(makeRows(makeMemory()))) it.effect(name, () => run);
