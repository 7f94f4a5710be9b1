import type { ChatQuery, EntryQuery } from "@parley/core";
import { makePlaces, type Client } from "@parley/core/ports";
import { Effect } from "effect";
import { FairQueue } from "./FairQueue.ts";

/**
 * How many rows are read at once; of each key, how many reads wait, and for how many milliseconds. An entry may have
 * 100 kB and takes three times that while it is encoded; a waiting read takes 30 kB.
 */
const limits = { rows: 1_600, waiting: 2_000, millis: 10_000 };
/**
 * What a smaller read counts as, so that at most 64 run at once. With 100, which is 16 at once, a list among 128
 * connections takes 5 % more CPU.
 */
const leastRows = 25;

/**
 * How many rows a list counts as while it is read. Any but a first page in the default order may take as long as the
 * longest page, whatever its limit.
 */
export const rowsOf = (query: ChatQuery | EntryQuery): number => {
  const isFiltered = "search" in query ? Boolean(query.search) : query.after !== null;
  const isQuick = query.page === 1 && query.orderBy[0].field === "id" && !isFiltered;
  return isQuick ? query.limit : 100;
};

/** Lets the keys read lists and histories in turn. A read that has to wait too long, or behind too many, is refused. */
export const makeReadTurns = ({ millis, rows, waiting } = limits) => {
  const [places, waitingPlaces] = [makePlaces(rows), makePlaces(Infinity)];
  const queue = new FairQueue<() => void>();
  let isBeginning = false;
  /** Begins the reads that may run now. Some of them end, and call this, before `begin` returns. */
  const beginNext = () => {
    if (isBeginning) return;
    isBeginning = true;
    const shift = () => queue.shift((client) => !places.isFull(client));
    try {
      for (let begin = shift(); begin !== undefined; begin = shift()) begin();
    } finally {
      isBeginning = false;
    }
  };
  /**
   * Waits for the client's turn. Returns the function that ends it, or `null` if the read is refused.
   *
   * @param count how many rows the read counts as
   */
  return (client: Client, count: number): Effect.Effect<(() => void) | null> =>
    Effect.suspend(() => {
      const take = () => {
        const free = places.take(client, Math.max(count, leastRows));
        return () => {
          free();
          beginNext();
        };
      };
      if (!places.isFull(client)) return Effect.succeed(take());
      if (waitingPlaces.isFull(client, waiting)) return Effect.succeed(null);
      return Effect.callback<(() => void) | null>((resume) => {
        const freePlace = waitingPlaces.take(client);
        const stopWaiting = () => {
          clearTimeout(timer);
          freePlace();
        };
        const begin = () => {
          stopWaiting();
          resume(Effect.succeed(take()));
        };
        const leave = () => {
          queue.remove(client, begin);
          stopWaiting();
        };
        // `Effect.timeout` would run two more fibers for each read that waits.
        const timer = setTimeout(() => {
          leave();
          resume(Effect.succeed(null));
        }, millis);
        queue.push(client, begin);
        return Effect.sync(leave);
      });
    });
};
