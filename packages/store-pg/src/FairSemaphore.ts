/**
 * Permits that are lent by turn: whose line was served goes behind all lines that wait. (Effect's PartitionedSemaphore
 * leaves it where it was, and others who come anew stand before it for ever.)
 */
import { Effect } from "effect";

export interface FairSemaphore<in Key> {
  /** Waits in the line of the key. */
  readonly take: (key: Key) => Effect.Effect<void>;
  readonly release: Effect.Effect<void>;
  readonly withPermit: (
    key: Key,
  ) => <A, E, R>(effect: Effect.Effect<A, E, R>) => Effect.Effect<A, E, R>;
}

export const makeFairSemaphore = <Key>(permits: number): FairSemaphore<Key> => {
  let free = permits;
  /** Who waits; the line that comes next is the first. */
  const lines = new Map<Key, Set<() => void>>();

  const take = (key: Key) =>
    Effect.callback<void>((resume) => {
      if (free > 0) {
        free--;
        return resume(Effect.void);
      }
      const begin = () => resume(Effect.void);
      const line = lines.get(key) ?? new Set();
      lines.set(key, line.add(begin));
      return Effect.sync(() => {
        if (line.delete(begin) && line.size === 0) lines.delete(key);
      });
    });

  const lend = () => {
    const [next] = lines;
    if (next === undefined) {
      free++;
      return;
    }
    const [key, line] = next;
    const [begin] = line;
    line.delete(begin!);
    lines.delete(key);
    if (line.size > 0) lines.set(key, line);
    begin!();
  };

  // Who begins may end at once: its permit is lent after that, not within.
  let returned = 0;
  let lending = false;
  const release = Effect.sync(() => {
    returned++;
    if (lending) return;
    lending = true;
    try {
      while (returned > 0) {
        returned--;
        lend();
      }
    } finally {
      lending = false;
    }
  });

  return {
    take,
    release,
    withPermit: (key) => (effect) =>
      Effect.uninterruptibleMask((restore) =>
        Effect.andThen(restore(take(key)), Effect.ensuring(restore(effect), release)),
      ),
  };
};
