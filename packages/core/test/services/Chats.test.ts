import { assert, it } from "@effect/vitest";
import { Chats, ChatId, defaultChatQuery, defaultEntryQuery } from "@parley/core";
import { layerMemoryWith } from "@parley/store-memory";
import { Effect, Layer } from "effect";
import { Digest } from "effect/crypto";
import { chatbot } from "./asked.ts";

it.effect("a list with an invalid query fails with ArgumentInvalid, which names the field", () =>
  Effect.gen(function* () {
    const chats = yield* Chats;
    const chatId = ChatId.make(1);
    for (const [field, list] of [
      ["page", chats.list(chatbot, { ...defaultChatQuery, page: 0 })],
      ["search", chats.list(chatbot, { ...defaultChatQuery, search: "a\0" })],
      ["limit", chats.history(chatbot, chatId, { ...defaultEntryQuery, limit: 101 })],
      ["chatId", chats.history(chatbot, 1.5 as ChatId, defaultEntryQuery)],
    ] as const) {
      const error = yield* Effect.flip<unknown, unknown, never>(list);
      assert.deepInclude(error, { _tag: "ArgumentInvalid", field });
    }
  }).pipe(
    Effect.provide(
      Chats.layer.pipe(Layer.provide([layerMemoryWith([chatbot]), Digest.layerWebCrypto])),
    ),
  ),
);
