/**
 * Chats and their entries: how they are made, and by which statement a page of them is read.
 */
import { ChatStore, helloEntry } from "@parley/core";
import { Effect } from "effect";
import { createTimeout, type ChatCreation } from "./chats/ChatCreation.ts";
import { makeListChats } from "./chats/ChatListing.ts";
import { indexedIn } from "./chats/ChatSearch.ts";
import { makeListEntries } from "./chats/EntryListing.ts";
import { makeReads } from "./chats/Paging.ts";
import type { PgPools } from "./database/PgPools.ts";

export const makeChatStore = Effect.fnUntraced(function* (pools: PgPools, creation: ChatCreation) {
  const [database] = yield* pools.reads.query<{ readonly datctype: string }>(
    "operator",
    thisDatabase,
    [],
  );
  const reads = makeReads(pools);

  return ChatStore.of({
    createChat: (chatbot, { helloMessage, name, userRef }, idempotencyKey) => {
      const entry = helloMessage === null ? null : helloEntry(helloMessage);
      const chat = { name, userRef, entry };
      return idempotencyKey === null
        ? Effect.map(
            creation.create(chatbot, { ...chat, claimed: null }, createTimeout),
            (created) => ({
              chat: { id: created!.id, name, userRef, createTime: created!.createTime },
              replayed: false,
            }),
          )
        : creation.createOnce(chatbot, chat, idempotencyKey);
    },

    listChats: makeListChats(reads, {
      from: pools.searched,
      indexed: indexedIn(database!.datctype),
    }),

    listEntries: makeListEntries(reads),
  });
});

const thisDatabase = "select datctype from pg_database where datname = current_database()";
