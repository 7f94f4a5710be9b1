/**
 * Batches writes. A write that arrives alone runs immediately. Writes that arrive while a statement is in flight share
 * the next one.
 */
import { Deferred, Effect, Exit, Iterable } from "effect";

interface Waiting<A, B, E> {
  readonly item: A;
  readonly done: Deferred.Deferred<B, E>;
}

interface Lane<A, B, E> {
  readonly waiting: Set<Waiting<A, B, E>>;
  writers: number;
}

export interface BatchOptions<Full, Late> {
  /** Batches of one lane in flight at a time. */
  readonly writers: number;
  /** Items of one batch. */
  readonly batch: number;
  /** Items that wait in one lane. */
  readonly waiting: number;
  readonly full: Full;
  readonly late: Late;
}

/**
 * Makes a function that writes one item of a lane. `write` returns one result for each item, in their order; its
 * failure is that of every item, because any may have been written. An item fails with `full` if too many wait in its
 * lane, or if it still waits after so many milliseconds, and with `late` if it is in flight then. An interruption
 * removes an item that waits, and waits for the end of a write in flight.
 */
export const makeWriteBatcher = Effect.fnUntraced(function* <A, B, E, Full, Late>(
  write: (lane: number, items: ReadonlyArray<A>) => Effect.Effect<ReadonlyArray<B>, E>,
  { batch, full, late, waiting, writers }: BatchOptions<Full, Late>,
) {
  const scope = yield* Effect.scope;
  const lanes = new Map<number, Lane<A, B, E | Full | Late>>();

  const drain = (name: number, lane: Lane<A, B, E | Full | Late>) =>
    Effect.gen(function* () {
      // Items that arrive in the same moment share a batch.
      yield* Effect.yieldNow;
      while (lane.waiting.size > 0) {
        const taken = Array.from(Iterable.take(lane.waiting, batch));
        for (const one of taken) lane.waiting.delete(one);
        const items = taken.map(({ item }) => item);
        const exit = yield* Effect.exit(Effect.suspend(() => write(name, items)));
        for (const [at, { done }] of taken.entries()) {
          Deferred.doneUnsafe(
            done,
            Exit.map(exit, (results) => results[at]!),
          );
        }
      }
      // Nothing may yield between the last look and this: an item could arrive unseen.
      lane.writers--;
      if (lane.writers === 0) lanes.delete(name);
    }).pipe(Effect.uninterruptible, Effect.forkIn(scope, { startImmediately: true }));

  return (name: number, item: A, timeout: number): Effect.Effect<B, E | Full | Late> =>
    Effect.uninterruptibleMask((restore) =>
      Effect.suspend(() => {
        if (scope.state._tag === "Closed") return Effect.interrupt;
        let lane = lanes.get(name);
        if (lane === undefined) lanes.set(name, (lane = { waiting: new Set(), writers: 0 }));
        const { waiting: line } = lane;
        if (line.size >= waiting) return Effect.fail(full);
        const one = { item, done: Deferred.makeUnsafe<B, E | Full | Late>() };
        line.add(one);
        const timer = setTimeout(
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
