/**
 * Branded ids, whose types `tsc` checks.
 */
import { assert, it } from "@effect/vitest";
import { ChatbotId, ChatId, defaultEntryQuery } from "@parley/core";
import type { ChatArchive, ChatStore, TurnStore } from "@parley/core/ports";
import type { Bot } from "@parley/core/promise";

const [chatbot, chat] = [ChatbotId.make(1), ChatId.make(2)];

it("chat ids and chatbot ids compile only in their own places, and plain numbers in neither", () => {
  const calls = (
    chats: ChatStore["Service"],
    turns: TurnStore["Service"],
    archive: ChatArchive["Service"],
  ) => [
    chats.listEntries(chatbot, chat, defaultEntryQuery),
    // @ts-expect-error: the ids are swapped
    chats.listEntries(chat, chatbot, defaultEntryQuery),
    // @ts-expect-error: the ids are swapped
    turns.take(chat, chatbot, null),
    // @ts-expect-error: it is the id of a chatbot
    archive.erase(chatbot, { _tag: "Chat", id: chatbot }, "test"),
    // @ts-expect-error: it is a number
    turns.take(1, chat, null),
  ];
  assert.isFunction(calls);
});

it("an id is a number at run time, and @parley/core/promise accepts plain numbers", () => {
  assert.strictEqual<number>(chat, 2);
  assert.throws(() => ChatId.make(1.5));
  const calls = (bot: Bot) => [bot.history(7), bot.ask(7, "q"), bot.erase({ chatId: 7 })];
  assert.isFunction(calls);
});
