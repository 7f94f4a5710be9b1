/**
 * Chats and their entries: how they are made, and by which statement a page of them is read.
 */
import {
  ChatStore,
  helloEntry,
  RetryKeyReused,
  type Chat,
  type ChatToCreate,
  type RetryKey,
} from "@parley/core";
import { Effect } from "effect";
import { makeListChats } from "./chats/ChatListing.ts";
import { indexedIn } from "./chats/ChatSearch.ts";
import { makeListEntries } from "./chats/EntryListing.ts";
import { makeReads } from "./chats/Paging.ts";
import type { ChatToMake, MakeChat } from "./Creations.ts";
import type { InsertedChat } from "./InsertChats.ts";
import type { Clients } from "./Clients.ts";
import { chatOf } from "./Rows.ts";

export const makeChatStore = Effect.fnUntraced(function* (clients: Clients, make: MakeChat) {
  const [database] = yield* clients.reads.query<{ readonly datctype: string }>(
    "operator",
    thisDatabase,
    [],
  );
  const reads = makeReads(clients);

  return ChatStore.of({
    createChat: Effect.fnUntraced(function* (chatbot, chat, retryKey) {
      const { chat: made, known } = yield* make(chatbot, toMake(chat, retryKey));
      if (made !== null) return { chat: created(chat, made), replayed: false };
      const { fingerprint, key } = retryKey!;
      if (known === undefined || known.fingerprint !== fingerprint || known.id === null) {
        return yield* new RetryKeyReused({ key });
      }
      return { chat: chatOf(known), replayed: true };
    }),

    listChats: makeListChats(reads, {
      from: clients.searched,
      indexed: indexedIn(database!.datctype),
    }),

    listEntries: makeListEntries(reads),
  });
});

const toMake = (
  { helloMessage, name, userRef }: ChatToCreate,
  retryKey: RetryKey | null,
): ChatToMake => ({
  name,
  userRef,
  entry: helloMessage === null ? null : helloEntry(helloMessage),
  retryKey: retryKey && { ...retryKey, turn: null },
});

const created = ({ name, userRef }: ChatToCreate, { createTime, id }: InsertedChat): Chat => ({
  id,
  name,
  userRef,
  createTime,
});

const thisDatabase = "select datctype from pg_database where datname = current_database()";
