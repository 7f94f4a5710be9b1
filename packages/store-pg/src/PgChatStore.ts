/**
 * Chats and their entries; which statement, on which connections, reads a page.
 */
import {
  ChatNotFound,
  ChatStore,
  helloEntry,
  newestChats,
  Overloaded,
  RetryKeyReused,
  type Chat,
  type ChatQuery,
  type ChatToCreate,
  type RetryKey,
  type StorageUnavailable,
} from "@parley/core";
import { Effect } from "effect";
import { anyByText, byText, firstByText, seek } from "./ChatPages.ts";
import {
  counted,
  filtered,
  found,
  isRemembered,
  remembered,
  walk,
  walked,
} from "./MatchingPages.ts";
import { makeCounts, newestRemembered, type Count, type Filters } from "./Counts.ts";
import { anyEntries, seekEntries } from "./EntryPages.ts";
import type { ChatToMake, MakeChat } from "./Creations.ts";
import type { InsertedChat } from "./InsertChats.ts";
import type { Clients } from "./Clients.ts";
import { spacing, type SetMilestonesSoon } from "./Milestones.ts";
import { byPosition, offsetOf, type Statement } from "./Pages.ts";
import { makePasses } from "./Passes.ts";
import { chatOf, entryOf, type ChatRow, type EntryRow } from "./Rows.ts";
import { indexedIn, type Searching } from "./Searching.ts";
import { orUnavailable } from "./Storage.ts";

/** Rows that a list may read on the way without being thought dear. */
const nearby = 10_000;

/** Rows that are counted in no time. */
const quick = 500;

export const makeChatStore = Effect.fnUntraced(function* (
  { passes, reads, searched }: Clients,
  setMilestonesSoon: SetMilestonesSoon,
  make: MakeChat,
) {
  const { pass, search } = yield* makePasses(passes);
  const [database] = yield* reads.query<{ readonly datctype: string }>(
    "operator",
    thisDatabase,
    [],
  );
  const searching: Searching = { from: searched, indexed: indexedIn(database!.datctype) };

  /** For what reads little, wherever it looks. */
  const light = <Row extends object>(chatbot: number, { text, values }: Statement) =>
    orUnavailable(reads.query<Row>(chatbot, text, values));

  const counts = yield* makeCounts(
    ({ chatbot, ...filters }: Filters) =>
      Effect.map(
        pass<CountRow>(
          chatbot,
          filters.search === null
            ? filtered(chatbot, { ...newestChats, ...filters, limit: 0 }, undefined)
            : counted(chatbot, filters, searching),
        ),
        ([row]) => countOf(row!, row!.newest ?? null),
      ),
    { most: 2_000 },
  );

  /** How the chats that match are read, when their count is known up to a position. */
  const readMatching = (
    chatbot: number,
    query: ChatQuery,
    known: Count,
  ): Effect.Effect<ReadonlyArray<ChatPageRow>, Overloaded | StorageUnavailable> => {
    const descending = byPosition(query.orderBy);
    if (descending === undefined) {
      return pass(chatbot, filtered(chatbot, query, known, { searching }));
    }
    if (!isSearch(query)) {
      const read = offsetOf(query) > nearby ? pass : light;
      return read(chatbot, filtered(chatbot, query, known));
    }
    if (descending && isRemembered(query, known)) {
      return search(chatbot, remembered(chatbot, query, known, searching));
    }
    const gathered = pass<ChatPageRow>(chatbot, found(chatbot, query, descending, searching));
    const expected = ((offsetOf(query) + query.limit) * known.reached) / (known.matching + 1);
    if (expected > walk) return gathered;
    return Effect.flatMap(
      search<ChatPageRow>(chatbot, walked(chatbot, query, known, descending, searching)),
      (rows) => (isWhole(query, rows) ? Effect.succeed(rows) : gathered),
    );
  };

  /** A user's list, if it is short and nothing is remembered of it. */
  const fewMatching = Effect.fnUntraced(function* (
    chatbot: number,
    query: ChatQuery,
    filters: Filters,
  ) {
    const isNear = byPosition(query.orderBy) !== undefined && offsetOf(query) <= nearby;
    if (filters.search !== null || !isNear) return undefined;
    if ((yield* counts.known(filters)) !== undefined) return undefined;
    const rows = yield* light<ChatPageRow>(
      chatbot,
      filtered(chatbot, query, undefined, { atMost: nearby }),
    );
    const total = Number(rows[0]!.total);
    if (total > nearby) return undefined;
    if (total > quick) yield* counts.remember(filters, countOf(rows[0]!, null));
    return chatPage(rows);
  });

  /** The chats that match the filters; the count of searches and of long lists is remembered. */
  const matching = Effect.fnUntraced(function* (chatbot: number, query: ChatQuery) {
    const filters = { chatbot, search: query.search || null, userRef: query.userRef };
    // What is remembered may be void, and while an erasure goes on, so may be what was just counted.
    for (let attempt = 0; attempt < 2; attempt++) {
      const few = yield* fewMatching(chatbot, query, filters);
      if (few !== undefined) return few;
      const known = yield* counts.get(filters);
      const rows = yield* readMatching(chatbot, query, known);
      const [row] = rows;
      if (row!.total === null) {
        yield* counts.forget(filters, known);
        continue;
      }
      const newest =
        row!.newest ??
        (row!.later && [...row!.later, ...known.newest!].slice(0, newestRemembered)) ??
        null;
      yield* counts.remember(filters, countOf(row!, newest));
      return chatPage(rows);
    }
    const descending = isSearch(query) ? byPosition(query.orderBy) : undefined;
    return chatPage(
      yield* pass<ChatPageRow>(
        chatbot,
        descending === undefined
          ? filtered(chatbot, query, undefined, { searching })
          : found(chatbot, query, descending, searching),
      ),
    );
  });

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

    listChats: (chatbot, query) => {
      if (query.id !== null) {
        return Effect.map(
          light<ChatPageRow>(chatbot, filtered(chatbot, query, undefined)),
          chatPage,
        );
      }
      if (query.userRef !== null || isSearch(query)) return matching(chatbot, query);
      const positions = byPosition(query.orderBy);
      if (positions !== undefined) {
        return Effect.map(light<ChatPageRow>(chatbot, seek(chatbot, query, positions)), chatPage);
      }
      const text = byText(query.orderBy);
      const page = (statement: Statement) =>
        Effect.map(pass<ChatPageRow>(chatbot, statement), chatPage);
      if (text === undefined) return page(filtered(chatbot, query, undefined));
      return offsetOf(query) <= spacing
        ? page(firstByText(chatbot, query, text))
        : // An earlier version set none, and when it was time they could not be set.
          Effect.andThen(setMilestonesSoon(chatbot), page(anyByText(chatbot, query, text)));
    },

    listEntries: (chatbot, chatId, query) => {
      const positions = byPosition(query.orderBy);
      const rows =
        query.id !== null
          ? light<EntryPageRow>(chatbot, anyEntries(chatbot, chatId, query))
          : positions !== undefined
            ? light<EntryPageRow>(chatbot, seekEntries(chatbot, chatId, query, positions))
            : pass<EntryPageRow>(chatbot, anyEntries(chatbot, chatId, query));
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

interface CountRow {
  readonly total: bigint | null;
  readonly reached?: bigint;
  readonly edition?: string;
  /** Positions of the newest that match, descending. */
  readonly newest?: ReadonlyArray<bigint>;
}

/** Rows of a page; a page without rows is one row of nulls, because the total must survive it. */
type ChatPageRow = CountRow & {
  /** As `newest`, but only of those after the remembered ones; null when those are not known. */
  readonly later?: ReadonlyArray<bigint> | null;
} & (ChatRow | { readonly id: null });
type EntryPageRow = { readonly total: bigint } & (EntryRow | { readonly id: null });

const isSearch = ({ search }: ChatQuery) => search !== null && search !== "";

const countOf = (
  { edition, reached, total }: CountRow,
  newest: ReadonlyArray<bigint> | null,
): Count => ({
  matching: Number(total),
  reached: Number(reached),
  edition: edition!,
  newest,
});

/** Whether a page has as many rows as it must, or its total is void in any case. */
const isWhole = (query: ChatQuery, rows: ReadonlyArray<ChatPageRow>): boolean => {
  const { id, total } = rows[0]!;
  const most = Math.min(query.limit, Number(total) - offsetOf(query));
  return total === null || (id === null ? 0 : rows.length) === Math.max(0, most);
};

const chatPage = (rows: ReadonlyArray<ChatPageRow>) => ({
  total: Number(rows[0]!.total ?? 0),
  items: rows[0]!.id === null ? [] : (rows as ReadonlyArray<ChatRow>).map(chatOf),
});

const thisDatabase = "select datctype from pg_database where datname = current_database()";
