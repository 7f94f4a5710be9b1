/**
 * What is remembered of counts that are dear to make. Chats are only added, so a count up to a position
 * stays true, and only the chats after it need to be counted; an erasure makes it void, and so does
 * the loss of the newest.
 */
import { Cache, Duration, Effect, Option } from "effect";
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

/** Counts that are made when they are first wanted, once for all who want them at the same time. */
export const makeCounts = <E>(
  count: (filters: Filters) => Effect.Effect<Count, E>,
  { most }: { readonly most: number },
) =>
  Effect.map(makeShared(count, { most, keep: Duration.infinity }), (counts) => ({
    get: (filters: Filters) => getShared(counts, filters),
    /** Only if it is remembered. */
    known: (filters: Filters) =>
      Effect.map(Cache.getSuccess(counts, filters), Option.getOrUndefined),
    remember: (filters: Filters, count: Count) => Cache.set(counts, filters, count),
    forget: (filters: Filters, count: Count) =>
      Cache.invalidateWhen(counts, filters, (remembered) => remembered === count),
  }));
