import { makePlaces, type Client } from "@parley/core/ports";
import { Effect } from "effect";
import { FairQueue } from "./FairQueue.ts";

/**
 * How many reads run at once; of each key, how many wait, and for how many milliseconds. A page of a history may have
 * 10 MB and takes three times that while it is encoded; a waiting read takes 30 kB. 16 at once are 8,000 a second.
 */
const limits = { reads: 16, waiting: 2_000, millis: 10_000 };

/** Lets the keys read lists and histories in turn. A read that has to wait too long, or behind too many, is refused. */
export const makeReadTurns = ({ millis, reads, waiting } = limits) => {
  const [places, waitingPlaces] = [makePlaces(reads), makePlaces(Infinity)];
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
