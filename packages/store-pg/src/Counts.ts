/**
 * What is remembered of counts that are dear to make. Chats are only added, so a count up to a position
 * stays true, and only the chats after it need to be counted; an erasure makes it void, and so does
 * the loss of the newest.
 */
import { Effect } from "effect";
import { makeRemembered } from "./Remembered.ts";
import { getShared, makeShared } from "./Shared.ts";

export interface Count {
  readonly matching: number;
  /** The position up to which was counted. */
  readonly reached: number;
  /**
   * A number that each erasure of the chatbot's chats makes greater, and which one is the newest of those that were
   * counted: a database that took over from another may lack some of either, and has others in their places.
   */
  readonly edition: string;
  /** The positions of the newest that match, descending; `null` when they were not looked for. */
  readonly newest: ReadonlyArray<bigint> | null;
  /** The positions of the oldest that match, ascending; `null` when they were not looked for. */
  readonly oldest: ReadonlyArray<bigint> | null;
}

/** How many positions from either end are remembered. */
export const mostRemembered = 200;

/** The positions from one end, as far as they are known. */
export const positionsFrom = (
  { matching, newest, oldest }: Count,
  descending: boolean,
): ReadonlyArray<bigint> | null => {
  if (descending) return newest;
  return newest?.length === matching ? newest.toReversed() : oldest;
};

/** What was counted. */
export interface Filters {
  readonly chatbot: number;
  readonly search: string | null;
  readonly userRef: string | null;
}

/**
 * Counts that are made when they are first wanted, once for all who want them at the same time, and of which at most so
 * many are remembered.
 */
export const makeCounts = Effect.fnUntraced(function* <E>(
  count: (filters: Filters) => Effect.Effect<Count, E>,
  { most }: { readonly most: number },
) {
  const remembered = makeRemembered<number, Count>(most);
  const known = (filters: Filters) => remembered.get(filters.chatbot, keyOf(filters));
  const remember = (filters: Filters, made: Count) =>
    remembered.set(filters.chatbot, keyOf(filters), made);
  const making = yield* makeShared((filters: Filters) =>
    Effect.tap(count(filters), (made) =>
      // What was remembered meanwhile is later.
      Effect.sync(() => known(filters) === undefined && remember(filters, made)),
    ),
  );
  return {
    get: (filters: Filters): Effect.Effect<Count, E> =>
      Effect.suspend(() => {
        const count = known(filters);
        return count === undefined ? getShared(making, filters) : Effect.succeed(count);
      }),
    /** Only if it is remembered. */
    known,
    remember,
    forget: (filters: Filters, wrong: Count) => {
      if (known(filters) === wrong) remembered.delete(filters.chatbot, keyOf(filters));
    },
  };
});

const keyOf = ({ search, userRef }: Filters) => JSON.stringify([search, userRef]);
