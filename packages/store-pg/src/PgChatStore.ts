/**
 * Chats and their entries: how they are made, and by which statement a page of them is read.
 */
import { ChatNotFound, ChatStore, helloEntry } from "@parley/core";
import { Effect } from "effect";
import { anyByText, byText, chatPageOf, seek, type ChatPageRow } from "./ChatPages.ts";
import { makeMatching } from "./MatchingChats.ts";
import { filteredPage } from "./MatchingPages.ts";
import { anyEntries, seekEntries } from "./EntryPages.ts";
import type { ChatCreation } from "./chats/ChatCreation.ts";
import type { PgPools } from "./database/PgPools.ts";
import { byPosition, type Statement } from "./Pages.ts";
import { makePasses } from "./Passes.ts";
import { entryOf, type EntryRow } from "./Rows.ts";
import { indexedIn, isSearch, type Searching } from "./Searching.ts";
import { orUnavailable } from "./Storage.ts";

export const makeChatStore = Effect.fnUntraced(function* (
  { bulk, reads, searched }: PgPools,
  creation: ChatCreation,
  options?: Parameters<typeof makePasses>[2],
) {
  const [database] = yield* reads.query<{ readonly datctype: string }>(
    "operator",
    thisDatabase,
    [],
  );
  const searching: Searching = { from: searched, indexed: indexedIn(database!.datctype) };

  /** For what reads little, wherever it looks. */
  const light = <Row extends object>(chatbot: number, { text, values }: Statement) =>
    orUnavailable(reads.query<Row>(chatbot, text, values));

  const { pass, search, sort } = yield* makePasses(bulk, light, options);
  const passChats = <Row extends object>(chatbot: number, statement: Statement) =>
    pass<Row>(chatbot, statement, chatsOf(chatbot));
  const matching = yield* makeMatching({ light, pass: passChats, search }, searching);

  return ChatStore.of({
    createChat: (chatbot, { helloMessage, name, userRef }, retryKey) => {
      const entry = helloMessage === null ? null : helloEntry(helloMessage);
      const chat = { name, userRef, entry };
      return retryKey === null
        ? Effect.map(creation.create(chatbot, { ...chat, claimed: null }), (created) => ({
            chat: { id: created!.id, name, userRef, createTime: created!.createTime },
            replayed: false,
          }))
        : creation.createOnce(chatbot, chat, retryKey);
    },

    listChats: (chatbot, query) => {
      if (query.id !== null) {
        return Effect.map(
          light<ChatPageRow>(chatbot, filteredPage(chatbot, query, undefined)),
          chatPageOf,
        );
      }
      if (query.userRef !== null || isSearch(query)) return matching(chatbot, query);
      const positions = byPosition(query.orderBy);
      if (positions !== undefined) {
        return Effect.map(light<ChatPageRow>(chatbot, seek(chatbot, query, positions)), chatPageOf);
      }
      const text = byText(query.orderBy);
      if (text === undefined) {
        const statement = filteredPage(chatbot, query, undefined);
        return Effect.map(passChats<ChatPageRow>(chatbot, statement), chatPageOf);
      }
      return Effect.map(sort<ChatPageRow>(chatbot, anyByText(chatbot, query, text)), chatPageOf);
    },

    listEntries: (chatbot, chatId, query) => {
      const positions = byPosition(query.orderBy);
      const rows =
        query.id !== null
          ? light<EntryPageRow>(chatbot, anyEntries(chatbot, chatId, query))
          : positions !== undefined
            ? light<EntryPageRow>(chatbot, seekEntries(chatbot, chatId, query, positions))
            : pass<EntryPageRow>(
                chatbot,
                anyEntries(chatbot, chatId, query),
                entriesOf(chatbot, chatId),
              );
      return Effect.flatMap(rows, (found) => {
        const [first] = found;
        if (first === undefined) return Effect.fail(new ChatNotFound({ chatId }));
        return Effect.succeed({
          total: Number(first.total),
          items: first.id === null ? [] : (found as ReadonlyArray<EntryRow>).map(entryOf),
        });
      });
    },
  });
});

type EntryPageRow = { readonly total: bigint } & (EntryRow | { readonly id: null });

const chatsOf = (chatbot: number): Statement => ({
  text: "select chats as size from chat_counter where chatbot_id = $1",
  values: [chatbot],
});

// An entry may be as long as many chats.
const entriesOf = (chatbot: number, chat: number): Statement => ({
  text: "select entries::int8 * 10 as size from chat where chatbot_id = $1 and id = $2::int8",
  values: [chatbot, chat],
});

const thisDatabase = "select datctype from pg_database where datname = current_database()";
