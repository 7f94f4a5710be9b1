/**
 * Chats and their entries, as arrays that are filtered and sorted.
 */
import {
  ChatbotNotFound,
  ChatNotFound,
  ChatStore,
  fold,
  helloEntry,
  RetryKeyReused,
  type Chat,
  type ChatField,
  type Created,
  type Entry,
  type EntryField,
} from "@parley/core";
import { Effect } from "effect";
import { pageOf } from "./Listing.ts";
import { atPresent, type Memory } from "./Memory.ts";
import { knownRequest, rememberRequest, type StoredChat, type StoredEntry } from "./Tenant.ts";

export const makeChatStore = (memory: Memory): ChatStore["Service"] => ({
  createChat: (chatbot, { helloMessage, ...chat }, retryKey) =>
    atPresent<Created, ChatbotNotFound | RetryKeyReused>((now) => {
      if (!memory.registered.has(chatbot)) return Effect.fail(new ChatbotNotFound({ chatbot }));
      const tenant = memory.tenant(chatbot);
      if (retryKey !== null) {
        const known = knownRequest(tenant, retryKey.key, now);
        if (known !== undefined) {
          const made = known.chat === null ? undefined : tenant.byId.get(known.chat);
          return known.fingerprint === retryKey.fingerprint && made !== undefined
            ? Effect.succeed({ chat: chatOf(made), replayed: true })
            : Effect.fail(new RetryKeyReused({ key: retryKey.key }));
        }
      }
      const stored = memory.addChat(tenant, chat, now);
      if (helloMessage !== null) memory.addEntry(stored, helloEntry(helloMessage), now);
      if (retryKey !== null) {
        rememberRequest(tenant, retryKey, now, {
          turn: null,
          holder: null,
          chat: stored.id,
          entry: null,
        });
      }
      return Effect.succeed({ chat: chatOf(stored), replayed: false });
    }),

  listChats: (chatbot, query) =>
    Effect.sync(() => {
      const { id, search, userRef } = query;
      const { chats } = memory.tenant(chatbot);
      const wanted = search === null || search === "" ? null : fold(search);
      const matching =
        id === null && userRef === null && wanted === null
          ? chats
          : chats.filter(
              (chat) =>
                (id === null || chat.id === id) &&
                (userRef === null || chat.userRef === userRef) &&
                (wanted === null || (chat.folded?.includes(wanted) ?? false)),
            );
      const { items, total } = pageOf(matching, query, chatValue);
      return { items: items.map(chatOf), total };
    }),

  listEntries: (chatbot, chatId, query) =>
    Effect.suspend(() => {
      const chat = memory.tenant(chatbot).byId.get(chatId);
      if (chat === undefined) return Effect.fail(new ChatNotFound({ chatId }));
      const { id } = query;
      const matching = id === null ? chat.entries : chat.entries.filter((entry) => entry.id === id);
      const { items, total } = pageOf(matching, query, entryValue);
      return Effect.succeed({ items: items.map(entryOf), total });
    }),
});

export const chatOf = ({ createTime, id, name, userRef }: StoredChat): Chat => ({
  id,
  name,
  userRef,
  createTime,
});

export const entryOf = ({ usage: _, ...entry }: StoredEntry): Entry => entry;

const chatValue = (chat: StoredChat, field: ChatField) =>
  field === "_createTime" ? chat.createTime : chat[field];

const entryValue = (entry: StoredEntry, field: EntryField) =>
  field === "_createTime" ? entry.createTime : field === "chat_id" ? entry.chatId : entry[field];
