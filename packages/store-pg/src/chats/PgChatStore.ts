/**
 * The port `ChatStore`: creates chats, and lists chats and entries.
 */
import { ChatStore } from "@parley/core";
import { Effect } from "effect";
import type { PgPools } from "../database/PgPools.ts";
import type { ChatCreation } from "./ChatCreation.ts";
import { makeListChats } from "./ChatListing.ts";
import { indexedIn } from "./ChatSearch.ts";
import { makeListEntries } from "./EntryListing.ts";

const characterType = "select datctype from pg_database where datname = current_database()";

export const makeChatStore = Effect.fnUntraced(function* (
  pools: PgPools,
  { createChat }: ChatCreation,
) {
  const [database] = yield* pools.reads.query<{ readonly datctype: string }>(
    "operator",
    characterType,
  );
  return ChatStore.of({
    createChat,
    listChats: makeListChats(pools, indexedIn(database!.datctype)),
    listEntries: makeListEntries(pools),
  });
});
