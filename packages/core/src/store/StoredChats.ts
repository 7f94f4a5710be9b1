/**
 * The rules of creating chats, and of who may read them.
 */
import { Effect } from "effect";
import { helloEntry } from "../model/Entry.ts";
import {
  ChatbotNotFound,
  ChatNotFound,
  EntryNotFound,
  IdempotencyKeyReused,
} from "../model/Errors.ts";
import type { ChatStore } from "../ports/ChatStore.ts";
import { addChat, addEntry } from "./Additions.ts";
import { isFree } from "./DecideTake.ts";
import { ownKey, sweepKeys, writeKey } from "./Keys.ts";
import type { ColdRows, Rows } from "./Rows.ts";

type Port = ChatStore["Service"];

export const makeChats = (rows: Rows): Pick<Port, "createChat" | "listChats" | "listEntries"> => {
  const createChat: Port["createChat"] = (chatbot, { helloMessage, ...fields }, idempotencyKey) =>
    rows.write(
      { _tag: "Chatbot", chatbot },
      Effect.fnUntraced(function* (tx) {
        if ((yield* tx.chatbot(chatbot)) === null) return yield* new ChatbotNotFound({ chatbot });
        yield* sweepKeys(tx, chatbot, idempotencyKey);
        const key = yield* ownKey(tx, chatbot, idempotencyKey);
        if (key !== null && !isFree(key, tx.now)) {
          const isOwn = key.fingerprint === idempotencyKey!.fingerprint;
          // A claimed key and an ask's have turns; a stopped one has no chat of its own.
          const createdChat = key.turn === null && !key.isStopped;
          if (!isOwn || !createdChat) return yield* new IdempotencyKeyReused();
          const { chat } = (yield* tx.chat(chatbot, key.chatId!))!;
          return { chat, helloEntry: null, replayed: true };
        }
        const newChat = yield* addChat(tx, chatbot, fields);
        const { chat } = newChat;
        const hello =
          helloMessage === null
            ? null
            : yield* addEntry(tx, chatbot, newChat, helloEntry(helloMessage));
        yield* writeKey(tx, chatbot, idempotencyKey, { chatId: chat.id });
        return { chat, helloEntry: hello, replayed: false };
      }),
    );

  const listChats: Port["listChats"] = (chatbot, query) =>
    rows.read((tx) => tx.chatPage(chatbot, query));

  const listEntries: Port["listEntries"] = (chatbot, chatId, query, visitor = null) =>
    Effect.flatMap(
      rows.read((tx) => tx.entryPage(chatbot, chatId, query, visitor)),
      (page) => (page === null ? Effect.fail(new ChatNotFound({ chatId })) : Effect.succeed(page)),
    );

  return { createChat, listChats, listEntries };
};

/** What clients change in chats that exist. */
export const makeChatChanges = (rows: ColdRows): Pick<Port, "renameChat" | "rateEntry"> => ({
  renameChat: (chatbot, chatId, name, visitor = null) =>
    Effect.flatMap(
      rows.write({ _tag: "Chatbot", chatbot }, (tx) =>
        tx.renameChat(chatbot, chatId, name, visitor),
      ),
      (chat) => (chat === null ? new ChatNotFound({ chatId }) : Effect.succeed(chat)),
    ),

  rateEntry: (chatbot, chatId, entryId, feedback, visitor = null) =>
    rows.write(
      { _tag: "Chatbot", chatbot },
      Effect.fnUntraced(function* (tx) {
        const chat = yield* tx.ownChat(chatbot, chatId, visitor);
        if (chat === null) return yield* new ChatNotFound({ chatId });
        const entry = yield* tx.rateEntry(chatbot, chatId, entryId, feedback);
        return entry ?? (yield* new EntryNotFound({ chatId, entryId }));
      }),
    ),
});
