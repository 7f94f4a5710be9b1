/**
 * The port `ChatStore`: creates chats, and lists chats and entries.
 */
import { ChatStore, helloEntry } from "@parley/core";
import { Effect } from "effect";
import type { PgPools } from "../database/PgPools.ts";
import { createTimeout, type ChatCreation } from "./ChatCreation.ts";
import { makeListChats } from "./ChatListing.ts";
import { indexedIn } from "./ChatSearch.ts";
import { makeListEntries } from "./EntryListing.ts";

const characterType = "select datctype from pg_database where datname = current_database()";

export const makeChatStore = Effect.fnUntraced(function* (pools: PgPools, creation: ChatCreation) {
  const [database] = yield* pools.reads.query<{ readonly datctype: string }>(
    "operator",
    characterType,
  );
  return ChatStore.of({
    createChat: (chatbot, { helloMessage, name, userRef }, idempotencyKey) => {
      const entry = helloMessage === null ? null : helloEntry(helloMessage);
      const chat = { name, userRef, entry, claimed: null };
      if (idempotencyKey !== null) return creation.createOnce(chatbot, chat, idempotencyKey);
      return Effect.map(creation.create(chatbot, chat, createTimeout), (created) => ({
        chat: { id: created!.id, name, userRef, createTime: created!.createTime },
        replayed: false,
      }));
    },
    listChats: makeListChats(pools, indexedIn(database!.datctype)),
    listEntries: makeListEntries(pools),
  });
});
