import { assert, it } from "@effect/vitest";
import { ChatArchive, ChatStore, TurnStore } from "@parley/core";
import { layerPostgres } from "@parley/store-pg";
import { Effect, Stream } from "effect";
import { freshSchema, optionsOf } from "./PostgresUnderTest.ts";

const chatbot = 9;
const chat = { name: null, userRef: null, helloMessage: null };
const entry = { question: "q", answer: "a", moderation: "none", flagged: false, usage: null };
const key = { key: "k", fingerprint: "f" };

it.live("every write to a chatbot that is not registered fails with ChatbotNotFound", () =>
  Effect.gen(function* () {
    const { createChat } = yield* ChatStore;
    const { append, take } = yield* TurnStore;
    const archive = yield* ChatArchive;
    const taken = yield* take(chatbot, null, null);
    if (taken._tag !== "Turn") return assert.fail("there is nothing to wait for");
    const writes: ReadonlyArray<Effect.Effect<unknown, { readonly _tag: string }>> = [
      createChat(chatbot, chat, null),
      createChat(chatbot, chat, key),
      append(taken.turn, entry),
      take(chatbot, null, key),
      archive.erase(chatbot, { _tag: "All" }, "test"),
      archive.import(chatbot, Stream.empty, "test"),
      Stream.runDrain(archive.export(chatbot, "test")),
    ];
    for (const write of writes) {
      assert.strictEqual((yield* Effect.flip(write))._tag, "ChatbotNotFound");
    }
    assert.strictEqual((yield* Effect.flip(take(chatbot, 1, key)))._tag, "ChatNotFound");
  }).pipe(Effect.provide(layerPostgres(optionsOf(freshSchema())))),
);
