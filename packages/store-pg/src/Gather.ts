/**
 * Gathers writes that arrive together into one statement. Who comes alone waits for nobody; who comes
 * while a statement is under way joins the next.
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

interface GatherOptions<E> {
  /** Statements of one lane under way at once. */
  readonly writers: number;
  /** Items of one statement. */
  readonly most: number;
  /** Items that wait in one lane; more are refused with `full`. */
  readonly waiting: number;
  /** Milliseconds; what has waited for longer when a write fails is refused with `full`, too. */
  readonly patience: number;
  readonly full: E;
}

/**
 * Makes a function that writes one item of a lane, and gathers what waits in a lane into one call of
 * `write`, which gives as many results as it got items, in their order. When a gathered write meets a
 * defect, its items are written one by one, so that one bad item fails alone; an expected failure is
 * everyone's, because the write may have taken place. Who is interrupted while an item waits takes it
 * back; while it is written, the interruption is over when the write is.
 */
export const gather = Effect.fnUntraced(function* <A, B, E>(
  write: (lane: number, items: ReadonlyArray<A>) => Effect.Effect<ReadonlyArray<B>, E>,
  { full, most, patience, waiting, writers }: GatherOptions<E>,
) {
  const scope = yield* Effect.scope;
  const lanes = new Map<number, Lane<A, B, E>>();

  /** Nobody is to wait for one write that fails after the other. */
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
