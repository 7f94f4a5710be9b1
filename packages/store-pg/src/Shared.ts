/**
 * Work that is done once for all who want the same while it is under way.
 */
import { Cache, Duration, Effect } from "effect";

/** Work by what is wanted. What nobody waits for any more is interrupted. */
export const makeShared = <Key, A, E>(
  work: (key: Key) => Effect.Effect<A, E>,
): Effect.Effect<Cache.Cache<Key, A, E>> =>
  Cache.makeWith(work, {
    capacity: Number.POSITIVE_INFINITY,
    timeToLive: () => Duration.zero,
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
