/**
 * New chats and entries: their ids and times.
 */
import { Effect } from "effect";
import type { Chat } from "../model/Chat.ts";
import type { Entry, NewEntry } from "../model/Entry.ts";
import { ChatId, type ChatbotId } from "../model/Ids.ts";
import type { ChatRow, Tx } from "./Rows.ts";

/** The current time or, if later, `before`: the clock may have gone back, or an import may have stored a later time. */
const timeAfter = (tx: Tx, before: Date | null) =>
  new Date(Math.max(tx.now, before?.getTime() ?? tx.now));

/** Stores a chat. Its time is never earlier than the previous chat's, so that times are in the order of ids. */
export const addChat = Effect.fnUntraced(function* (
  tx: Tx,
  chatbot: ChatbotId,
  fields: Pick<Chat, "name" | "userRef">,
) {
  const createTime = timeAfter(tx, yield* tx.latestChatTime(chatbot));
  const id = ChatId.make(yield* tx.nextId("chat"), { disableChecks: true });
  const chat: Chat = { id, name: fields.name, userRef: fields.userRef, createTime };
  yield* tx.insertChat(chatbot, chat);
  return { chat, lastEntryTime: null };
});

/** Stores an entry of the chat. Its time is never earlier than the previous entry's, nor than the chat's. */
export const addEntry = Effect.fnUntraced(function* (
  tx: Tx,
  chatbot: ChatbotId,
  { chat, lastEntryTime }: Pick<ChatRow, "chat" | "lastEntryTime">,
  {
    answer,
    apiKeyId = null,
    flagged,
    metadata = null,
    moderation,
    question,
    requestId = null,
    usage,
  }: NewEntry,
) {
  const createTime = timeAfter(tx, lastEntryTime ?? chat.createTime);
  const id = yield* tx.nextId("entry");
  const texts = { question, answer, moderation, flagged };
  const feedback = { rating: null, comment: null };
  const entry: Entry = { id, chatId: chat.id, ...texts, createTime, metadata, ...feedback };
  yield* tx.insertEntry(chatbot, { entry, usage, apiKeyId, requestId });
  return entry;
});
