/**
 * The chats that match a search, or are a user's: by which statement a page of them is read. Counts are made first, by a
 * pass, unless they are known.
 *
 * | page                                      | statement                                         |
 * | ----------------------------------------- | ------------------------------------------------- |
 * | a user's, near the first                  | `filteredPage`, and its count if there are few     |
 * | a search's by position, near its first    | `rememberedPage`                                  |
 * | a search's by position, likely near       | `walkedPage`; `gatheredPage` if it found too few   |
 * | a search's by position, farther           | `gatheredPage`, by a pass                         |
 * | any other                                 | `filteredPage`, by a pass                         |
 */
import {
  newestChats,
  type Chat,
  type ChatQuery,
  type Overloaded,
  type Page,
  type StorageUnavailable,
} from "@parley/core";
import { Effect } from "effect";
import { chatPageOf } from "./ChatPages.ts";
import { makeCounts, mostRemembered, positionsFrom, type Count, type Filters } from "./Counts.ts";
import {
  countMatches,
  filteredPage,
  gatheredPage,
  isRemembered,
  rememberedPage,
  walk,
  walkedPage,
  type CountRow,
  type MatchingRow,
} from "./MatchingPages.ts";
import { byPosition, offsetOf, type Statement } from "./Pages.ts";
import { isSearch, type Searching } from "./Searching.ts";

/** Rows that a list may read on the way without being thought dear. */
const nearby = 10_000;

/** Rows that are counted in no time. */
const quick = 500;

type Read = <Row extends object>(
  chatbot: number,
  statement: Statement,
) => Effect.Effect<ReadonlyArray<Row>, Overloaded | StorageUnavailable>;

export const makeMatching = Effect.fnUntraced(function* (
  { light, pass, search }: { readonly light: Read; readonly pass: Read; readonly search: Read },
  searching: Searching,
) {
  const counts = yield* makeCounts(
    ({ chatbot, ...filters }: Filters) =>
      Effect.map(
        pass<CountRow>(
          chatbot,
          filters.search === null
            ? filteredPage(chatbot, { ...newestChats, ...filters, limit: 0 }, undefined)
            : countMatches(chatbot, filters, searching),
        ),
        ([row]) => countOf(row!, row!),
      ),
    { most: 2_000 },
  );

  /** When their count is known up to a position. */
  const readMatching = Effect.fnUntraced(function* (
    chatbot: number,
    query: ChatQuery,
    known: Count,
  ): Effect.fn.Return<ReadonlyArray<MatchingRow>, Overloaded | StorageUnavailable> {
    const descending = byPosition(query.orderBy);
    if (descending === undefined) {
      return yield* pass<MatchingRow>(chatbot, filteredPage(chatbot, query, known, { searching }));
    }
    if (!isSearch(query)) {
      const read = offsetOf(query) > nearby ? pass : light;
      return yield* read<MatchingRow>(chatbot, filteredPage(chatbot, query, known));
    }
    const gathered = pass<MatchingRow>(
      chatbot,
      gatheredPage(chatbot, query, descending, searching),
    );
    if (isRemembered(query, known, descending)) {
      const rows = yield* search<MatchingRow>(
        chatbot,
        rememberedPage(chatbot, query, known, descending, searching),
      );
      return isTold(query, rows, known, descending) ? rows : yield* gathered;
    }
    const expected = ((offsetOf(query) + query.limit) * known.reached) / (known.matching + 1);
    if (expected > walk) return yield* gathered;
    const rows = yield* search<MatchingRow>(
      chatbot,
      walkedPage(chatbot, query, known, descending, searching),
    );
    return isWhole(query, rows) ? rows : yield* gathered;
  });

  /** A user's list, if it is short and nothing is remembered of it. */
  const fewMatching = Effect.fnUntraced(function* (
    chatbot: number,
    query: ChatQuery,
    filters: Filters,
  ) {
    const isNear = byPosition(query.orderBy) !== undefined && offsetOf(query) <= nearby;
    if (filters.search !== null || !isNear) return undefined;
    if (counts.known(filters) !== undefined) return undefined;
    const rows = yield* light<MatchingRow>(
      chatbot,
      filteredPage(chatbot, query, undefined, { atMost: nearby }),
    );
    const total = Number(rows[0]!.total);
    if (total > nearby) return undefined;
    if (total > quick) counts.remember(filters, countOf(rows[0]!, {}));
    return chatPageOf(rows);
  });

  return Effect.fnUntraced(function* (
    chatbot: number,
    query: ChatQuery,
  ): Effect.fn.Return<Page<Chat>, Overloaded | StorageUnavailable> {
    const filters = { chatbot, search: query.search || null, userRef: query.userRef };
    // What is remembered may be void, and while an erasure goes on, so may be what was just counted.
    for (let attempt = 0; attempt < 2; attempt++) {
      const few = yield* fewMatching(chatbot, query, filters);
      if (few !== undefined) return few;
      const known = yield* counts.get(filters);
      const rows = yield* readMatching(chatbot, query, known);
      const [row] = rows;
      if (row!.total === null) {
        counts.forget(filters, known);
        continue;
      }
      const newest =
        row!.newest ?? (row!.later && [...row!.later, ...known.newest!].slice(0, mostRemembered));
      // Chats only come behind the oldest.
      const oldest = row!.oldest ?? positionsFrom(known, false);
      counts.remember(filters, countOf(row!, { newest, oldest }));
      return chatPageOf(rows);
    }
    const descending = isSearch(query) ? byPosition(query.orderBy) : undefined;
    return chatPageOf(
      yield* pass<MatchingRow>(
        chatbot,
        descending === undefined
          ? filteredPage(chatbot, query, undefined, { searching })
          : gatheredPage(chatbot, query, descending, searching),
      ),
    );
  });
});

const countOf = (
  { edition, reached, total }: CountRow,
  {
    newest = null,
    oldest = null,
  }: {
    readonly newest?: Count["newest"] | undefined;
    readonly oldest?: Count["oldest"] | undefined;
  },
): Count => ({
  matching: Number(total),
  reached: Number(reached),
  edition: edition!,
  newest,
  oldest,
});

/** Whether a page has as many rows as it must, or its total is void in any case. */
const isWhole = (query: ChatQuery, rows: ReadonlyArray<MatchingRow>): boolean => {
  const { id, total } = rows[0]!;
  const most = Math.min(query.limit, Number(total) - offsetOf(query));
  return total === null || (id === null ? 0 : rows.length) === Math.max(0, most);
};

/**
 * Whether a page from remembered positions is right. Of those that came later the newest are seen, which are not the next
 * of the oldest where there are more.
 */
const isTold = (
  query: ChatQuery,
  rows: ReadonlyArray<MatchingRow>,
  known: Count,
  descending: boolean,
): boolean => {
  const seen = rows[0]!.later?.length ?? 0;
  const isKnown = offsetOf(query) + query.limit <= positionsFrom(known, descending)!.length;
  return isWhole(query, rows) && (descending || isKnown || seen < mostRemembered);
};
