/**
 * The rules of creating chats, and of who may read them.
 */
import { Effect } from "effect";
import { helloEntry } from "../model/Entry.ts";
import { ChatbotNotFound, ChatNotFound, IdempotencyKeyReused } from "../model/Errors.ts";
import { ChatStore } from "../ports/ChatStore.ts";
import { addChat, addEntry } from "./Additions.ts";
import { isFree } from "./DecideTake.ts";
import { ownKey, sweepKeys } from "./Keys.ts";
import type { Rows } from "./Rows.ts";

type Port = ChatStore["Service"];

export const makeChatStore = (rows: Rows): Port => {
  const createChat: Port["createChat"] = (chatbot, { helloMessage, ...fields }, idempotencyKey) =>
    rows.write(
      { _tag: "Chatbot", chatbot },
      Effect.fnUntraced(function* (tx) {
        if ((yield* tx.chatbot(chatbot)) === null) return yield* new ChatbotNotFound({ chatbot });
        yield* sweepKeys(tx, chatbot, idempotencyKey);
        const key = yield* ownKey(tx, chatbot, idempotencyKey);
        if (key !== null && !isFree(key, tx.now)) {
          const isOwn = key.fingerprint === idempotencyKey!.fingerprint;
          // A stopped key has no chat of its own, and neither has a claimed one.
          const createdChat = key.turnUntil === null && key.entryId === null && !key.isStopped;
          if (!isOwn || !createdChat) return yield* new IdempotencyKeyReused();
          const { chat } = (yield* tx.chat(chatbot, key.chatId!))!;
          return { chat, replayed: true };
        }
        const newChat = yield* addChat(tx, chatbot, fields);
        const { chat } = newChat;
        if (helloMessage !== null)
          yield* addEntry(tx, chatbot, newChat, helloEntry(helloMessage), null, null);
        if (idempotencyKey !== null)
          yield* tx.setIdempotencyKey(chatbot, idempotencyKey.key, {
            fingerprint: idempotencyKey.fingerprint,
            madeAt: tx.now,
            turn: null,
            turnUntil: null,
            chatId: chat.id,
            entryId: null,
            isStopped: false,
          });
        return { chat, replayed: false };
      }),
    );

  const listChats: Port["listChats"] = (chatbot, query) =>
    rows.read((tx) => tx.chatPage(chatbot, query));

  const listEntries: Port["listEntries"] = (chatbot, chatId, query, visitor = null) =>
    Effect.flatMap(
      rows.read((tx) => tx.entryPage(chatbot, chatId, query, visitor)),
      (page) => (page === null ? Effect.fail(new ChatNotFound({ chatId })) : Effect.succeed(page)),
    );

  return ChatStore.of({ createChat, listChats, listEntries });
};
