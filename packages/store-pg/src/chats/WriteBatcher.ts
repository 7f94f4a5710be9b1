/**
 * Batches writes. A write that arrives alone runs at once. Writes that arrive while a statement is in flight share the next
 * one.
 */
import { Cause, Clock, Deferred, Effect, Exit, Iterable } from "effect";

interface Waiting<A, B, E> {
  readonly since: number;
  readonly item: A;
  readonly done: Deferred.Deferred<B, E>;
}

interface Lane<A, B, E> {
  readonly waiting: Set<Waiting<A, B, E>>;
  writers: number;
}

export interface BatchOptions<E> {
  /** Batches of one lane in flight at once. */
  readonly writers: number;
  /** Items of one batch. */
  readonly most: number;
  /** Items that wait in one lane; more are refused with `full`. */
  readonly waiting: number;
  /** Milliseconds. Items that have waited for longer when a write fails are refused with `full`, too. */
  readonly patience: number;
  readonly full: E;
}

/**
 * Makes a function that writes one item of a lane. Batches what waits in a lane into one call of `write`, which gives as
 * many results as it got items, in their order. After a defect the items are written one by one, so that one bad item fails
 * alone; an expected failure is that of every item, because the write may have taken place. An interruption takes back an
 * item that waits, and waits for the end of a write in flight.
 */
export const makeWriteBatcher = Effect.fnUntraced(function* <A, B, E>(
  write: (lane: number, items: ReadonlyArray<A>) => Effect.Effect<ReadonlyArray<B>, E>,
  { full, most, patience, waiting, writers }: BatchOptions<E>,
) {
  const scope = yield* Effect.scope;
  const lanes = new Map<number, Lane<A, B, E>>();

  /** No item waits for one failing write after the other. */
  const refuseOldest = (lane: Lane<A, B, E>) =>
    Effect.map(Clock.currentTimeMillis, (now) => {
      for (const one of lane.waiting) {
        if (now - one.since < patience) return;
        lane.waiting.delete(one);
        Deferred.doneUnsafe(one.done, Exit.fail(full));
      }
    });

  const writeAll = (
    name: number,
    lane: Lane<A, B, E>,
    batch: ReadonlyArray<Waiting<A, B, E>>,
  ): Effect.Effect<void> =>
    Effect.gen(function* () {
      const items = batch.map(({ item }) => item);
      // What `write` throws is a defect, too.
      const exit = yield* Effect.exit(Effect.suspend(() => write(name, items)));
      const isDefect = Exit.isFailure(exit) && !Cause.hasFails(exit.cause);
      if (isDefect && batch.length > 1) {
        yield* Effect.forEach(batch, (one) => writeAll(name, lane, [one]), { discard: true });
        return;
      }
      for (const [at, { done }] of batch.entries()) {
        Deferred.doneUnsafe(
          done,
          Exit.map(exit, (results) => results[at]!),
        );
      }
      if (Exit.isFailure(exit) && !isDefect) yield* refuseOldest(lane);
    });

  /** Writes until nothing waits, and leaves in the same moment that this is seen. */
  const drain = (name: number, lane: Lane<A, B, E>) =>
    Effect.gen(function* () {
      // Those that arrive together are written together.
      yield* Effect.yieldNow;
      while (lane.waiting.size > 0) {
        const batch = Array.from(Iterable.take(lane.waiting, most));
        for (const one of batch) lane.waiting.delete(one);
        yield* writeAll(name, lane, batch);
      }
      lane.writers--;
      if (lane.writers === 0) lanes.delete(name);
    }).pipe(Effect.uninterruptible, Effect.forkIn(scope, { startImmediately: true }));

  return (name: number, item: A): Effect.Effect<B, E> =>
    Effect.uninterruptibleMask((restore) =>
      Effect.flatMap(Clock.currentTimeMillis, (since) => {
        if (scope.state._tag === "Closed") return Effect.interrupt;
        let lane = lanes.get(name);
        if (lane === undefined) lanes.set(name, (lane = { waiting: new Set(), writers: 0 }));
        if (lane.waiting.size >= waiting) return Effect.fail(full);
        const one = { since, item, done: Deferred.makeUnsafe<B, E>() };
        lane.waiting.add(one);
        const result = Effect.onInterrupt(restore(Deferred.await(one.done)), () =>
          lane.waiting.delete(one) ? Effect.void : Effect.exit(Deferred.await(one.done)),
        );
        if (lane.writers >= writers) return result;
        lane.writers++;
        return Effect.andThen(drain(name, lane), result);
      }),
    );
});
