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

/**
 * Counts that are made when they are first wanted, once for all who want them at the same time. At most so many are
 * remembered: one more makes the chatbot that has most forget the one that it wanted least recently.
 */
export const makeCounts = <E>(
  count: (filters: Filters) => Effect.Effect<Count, E>,
  { most }: { readonly most: number },
) => {
  type Counts = Cache.Cache<Filters, Count, E>;
  const ofChatbots = new Map<number, Counts>();

  const forgetOne = Effect.gen(function* () {
    let all = 0;
    let largest = { chatbot: 0, size: 0 };
    for (const [chatbot, counts] of ofChatbots) {
      const size = yield* Cache.size(counts);
      if (size === 0) ofChatbots.delete(chatbot);
      if (size > largest.size) largest = { chatbot, size };
      all += size;
    }
    if (all <= most) return;
    const counts = ofChatbots.get(largest.chatbot)!;
    const [oldest] = yield* Cache.keys(counts);
    yield* Cache.invalidate(counts, oldest!);
  });

  /** What may be one more. */
  const adding = Effect.fnUntraced(function* <A>(
    filters: Filters,
    add: (counts: Counts) => Effect.Effect<A, E>,
  ) {
    let counts = ofChatbots.get(filters.chatbot);
    if (counts === undefined) {
      counts = yield* makeShared(count, {
        most: Number.POSITIVE_INFINITY,
        keep: Duration.infinity,
      });
      ofChatbots.set(filters.chatbot, counts);
    }
    if (yield* Cache.has(counts, filters)) return yield* add(counts);
    return yield* Effect.tap(add(counts), forgetOne);
  });

  const existing = <A>(
    { chatbot }: Filters,
    use: (counts: Counts) => Effect.Effect<A>,
  ): Effect.Effect<A | undefined> =>
    Effect.suspend(() => {
      const counts = ofChatbots.get(chatbot);
      return counts === undefined ? Effect.undefined : use(counts);
    });

  return {
    get: (filters: Filters) => adding(filters, (counts) => getShared(counts, filters)),
    remember: (filters: Filters, made: Count) =>
      adding(filters, (counts) => Cache.set(counts, filters, made)),
    /** Only if it is remembered. */
    known: (filters: Filters) =>
      existing(filters, (counts) =>
        Effect.map(Cache.getSuccess(counts, filters), Option.getOrUndefined),
      ),
    forget: (filters: Filters, wrong: Count) =>
      existing(filters, (counts) =>
        Cache.invalidateWhen(counts, filters, (remembered) => remembered === wrong),
      ),
  };
};
