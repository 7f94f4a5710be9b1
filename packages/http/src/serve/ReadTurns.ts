/**
 * Lets keys read lists and histories in turn. A read that must wait too long, or behind too many others of its key, is
 * refused.
 */
import { makePlaces, type Client } from "@parley/core";
import { Effect } from "effect";
import { FairQueue } from "./FairQueue.ts";

/**
 * How many reads may run at once, until a large response has been sent. A page of a history may have 10 MB and more,
 * and is in memory about three times while it is encoded. Sixteen reads at once are enough for 8,000 a second.
 */
const reads = 16;

/** How many reads of a key may wait (30 kB of memory each), and for how long, in milliseconds. */
const waits = { count: 2_000, millis: 10_000 };

export const makeReadTurns = (limit = reads, { count, millis } = waits) => {
  const places = makePlaces(limit);
  const queue = new FairQueue<() => void>();
  /** Waits for the client's turn. Returns the function that ends it, or `null` if the read is refused. */
  return (client: Client): Effect.Effect<(() => void) | null> =>
    Effect.suspend(() => {
      const take = () => {
        const free = places.take(client);
        return () => {
          free();
          queue.shift((next) => !places.isFull(next))?.();
        };
      };
      if (!places.isFull(client)) return Effect.succeed(take());
      if (queue.sizeOf(client) >= count) return Effect.succeed(null);
      return Effect.callback<() => void>((resume) => {
        const begin = () => resume(Effect.succeed(take()));
        queue.push(client, begin);
        return Effect.sync(() => queue.remove(client, begin));
      }).pipe(Effect.timeoutOrElse({ duration: millis, orElse: () => Effect.succeed(null) }));
    });
};
