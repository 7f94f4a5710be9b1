/**
 * Work that is done once for all who want the same while it is under way.
 */
import { Cache, Duration, Effect, Exit } from "effect";

/**
 * Work by what is wanted; what succeeded is kept for a time, of the most recently wanted at most so many.
 * Work that nobody waits for any more is interrupted.
 */
export const makeShared = <Key, A, E>(
  work: (key: Key) => Effect.Effect<A, E>,
  { keep, most }: { readonly keep: Duration.Duration; readonly most: number },
): Effect.Effect<Cache.Cache<Key, A, E>> =>
  Cache.makeWith(work, {
    capacity: most,
    timeToLive: (exit) => (Exit.isSuccess(exit) ? keep : Duration.zero),
  });

/** The work's result. Who joined work that failed has it done once more, because another began it. */
export const getShared = <Key, A, E>(
  cache: Cache.Cache<Key, A, E>,
  key: Key,
): Effect.Effect<A, E> => {
  const get = Cache.get(cache, key);
  return Effect.flatMap(Cache.has(cache, key), (joins) =>
    joins ? Effect.catch(get, () => get) : get,
  );
};
