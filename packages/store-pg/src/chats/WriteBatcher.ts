/**
 * Batches writes. A write that arrives alone runs at once. Writes that arrive while a statement is in flight share the next
 * one.
 */
import { Cause, Deferred, Effect, Exit, Iterable } from "effect";

interface Waiting<A, B, E> {
  readonly item: A;
  readonly done: Deferred.Deferred<B, E>;
}

interface Lane<A, B, E> {
  readonly waiting: Set<Waiting<A, B, E>>;
  writers: number;
}

export interface BatchOptions<Full, Late> {
  /** Batches of one lane in flight at once. */
  readonly writers: number;
  /** Items of one batch. */
  readonly most: number;
  /** Items that wait in one lane; more are refused with `full`. */
  readonly waiting: number;
  readonly full: Full;
  readonly late: Late;
}

/**
 * Makes a function that writes one item of a lane. Batches what waits in a lane into one call of `write`, which gives as
 * many results as it got items, in their order. After a defect the items are written one by one, so that one bad item fails
 * alone; an expected failure is that of every item, because the write may have taken place. After so many milliseconds an item
 * fails, with `full` if it still waits, with `late` if its write is in flight. An interruption takes back an item that waits,
 * and waits for the end of a write in flight.
 */
export const makeWriteBatcher = Effect.fnUntraced(function* <A, B, E, Full, Late>(
  write: (lane: number, items: ReadonlyArray<A>) => Effect.Effect<ReadonlyArray<B>, E>,
  { full, late, most, waiting, writers }: BatchOptions<Full, Late>,
) {
  const scope = yield* Effect.scope;
  const lanes = new Map<number, Lane<A, B, E | Full | Late>>();

  const writeAll = (
    name: number,
    batch: ReadonlyArray<Waiting<A, B, E | Full | Late>>,
  ): Effect.Effect<void> =>
    Effect.gen(function* () {
      const items = batch.map(({ item }) => item);
      // What `write` throws is a defect, too.
      const exit = yield* Effect.exit(Effect.suspend(() => write(name, items)));
      const isDefect = Exit.isFailure(exit) && !Cause.hasFails(exit.cause);
      if (isDefect && batch.length > 1) {
        yield* Effect.forEach(batch, (one) => writeAll(name, [one]), { discard: true });
        return;
      }
      for (const [at, { done }] of batch.entries()) {
        Deferred.doneUnsafe(
          done,
          Exit.map(exit, (results) => results[at]!),
        );
      }
    });

  /** Writes until nothing waits, and leaves in the same moment that this is seen. */
  const drain = (name: number, lane: Lane<A, B, E | Full | Late>) =>
    Effect.gen(function* () {
      // Those that arrive together are written together.
      yield* Effect.yieldNow;
      while (lane.waiting.size > 0) {
        const batch = Array.from(Iterable.take(lane.waiting, most));
        for (const one of batch) lane.waiting.delete(one);
        yield* writeAll(name, batch);
      }
      lane.writers--;
      if (lane.writers === 0) lanes.delete(name);
    }).pipe(Effect.uninterruptible, Effect.forkIn(scope, { startImmediately: true }));

  return (name: number, item: A, timeout: number | null): Effect.Effect<B, E | Full | Late> =>
    Effect.uninterruptibleMask((restore) =>
      Effect.suspend(() => {
        if (scope.state._tag === "Closed") return Effect.interrupt;
        let lane = lanes.get(name);
        if (lane === undefined) lanes.set(name, (lane = { waiting: new Set(), writers: 0 }));
        const { waiting: line } = lane;
        if (line.size >= waiting) return Effect.fail(full);
        const one = { item, done: Deferred.makeUnsafe<B, E | Full | Late>() };
        line.add(one);
        const timer =
          timeout === null
            ? undefined
            : setTimeout(
                () => Deferred.doneUnsafe(one.done, Exit.fail(line.delete(one) ? full : late)),
                timeout,
              );
        const result = restore(Deferred.await(one.done)).pipe(
          Effect.onInterrupt(() =>
            line.delete(one) ? Effect.void : Effect.exit(Deferred.await(one.done)),
          ),
          Effect.ensuring(Effect.sync(() => clearTimeout(timer))),
        );
        if (lane.writers >= writers) return result;
        lane.writers++;
        return Effect.andThen(drain(name, lane), result);
      }),
    );
});
