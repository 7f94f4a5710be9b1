import { assert, it } from "@effect/vitest";
import {
  ChatbotRegistry,
  ChatStore,
  defaultSettings,
  layerRetention,
  newestChats,
  TurnStore,
} from "@parley/core";
import { layerMemory } from "@parley/store-memory";
import { Effect, Layer } from "effect";
import { TestClock } from "effect/testing";

const entry = { question: "q", answer: "a", moderation: "none", flagged: false, usage: null };

it.effect("chats are erased after their chatbot's days without an entry, and no others", () =>
  Effect.gen(function* () {
    const registry = yield* ChatbotRegistry;
    const store = yield* ChatStore;
    const turns = yield* TurnStore;
    const make = Effect.fnUntraced(function* (name: string, retentionDays: number | null) {
      const { id } = yield* registry.create(
        {
          workspaceName: "Acme",
          name,
          description: "",
          settings: { ...defaultSettings, retentionDays },
          keys: [],
        },
        "test",
      );
      const chat = { name: null, userRef: null, helloMessage: null };
      const idle = yield* store.createChat(id, chat, null);
      const used = yield* store.createChat(id, chat, null);
      return { id, idle: idle.chat.id, used: used.chat.id };
    });
    const left = ({ id }: { readonly id: number }) =>
      Effect.map(store.listChats(id, newestChats), ({ items }) => items.map((chat) => chat.id));

    const kept = yield* make("kept", null);
    const short = yield* make("short", 2);
    yield* TestClock.adjust("36 hours");
    const taken = yield* turns.take(short.id, short.used, null);
    assert.strictEqual(taken._tag, "Turn");
    if (taken._tag === "Turn") yield* turns.append(taken.turn, entry);
    yield* TestClock.adjust("10 hours");
    assert.deepStrictEqual(yield* left(short), [short.used, short.idle]);
    yield* TestClock.adjust("4 hours");
    assert.deepStrictEqual(yield* left(short), [short.used]);
    yield* TestClock.adjust("2 days");
    assert.deepStrictEqual(yield* left(short), []);
    assert.deepStrictEqual(yield* left(kept), [kept.used, kept.idle]);
  }).pipe(Effect.provide(Layer.provideMerge(layerRetention, layerMemory))),
);
