/**
 * Batches writes. A lane has up to `writers` statements in flight. Writes that arrive while all of them are in flight
 * share the next one.
 */
import { StorageUnavailable, type Overloaded } from "@parley/core";
import { Deferred, Effect, Exit, Iterable } from "effect";
import { busy } from "../database/PgErrors.ts";

interface Write<A, B, E> {
  readonly item: A;
  readonly done: Deferred.Deferred<B, E | Overloaded | StorageUnavailable>;
}

interface Lane<A, B, E> {
  readonly waiting: Set<Write<A, B, E>>;
  writers: number;
}

/**
 * Makes a function that writes one item of a lane. `write` returns one result for each item, in their order; its
 * failure is that of every item, because any may have been written. A batch that dies has written nothing; its items
 * are written one by one, so that only the item with the defect dies. After so many milliseconds an item fails: with
 * `Overloaded` if it still waits, with `StorageUnavailable` if it is in flight. An interruption removes an item that
 * waits, and waits for the end of a write in flight.
 */
export const makeWriteBatcher = Effect.fnUntraced(function* <A, B, E>(
  write: (lane: number, items: ReadonlyArray<A>) => Effect.Effect<ReadonlyArray<B>, E>,
  /** The number of batches of one lane in flight at a time, and of the items of a batch. */
  { batch, writers }: { readonly batch: number; readonly writers: number },
) {
  const scope = yield* Effect.scope;
  const lanes = new Map<number, Lane<A, B, E>>();

  const writeAll = (name: number, writes: ReadonlyArray<Write<A, B, E>>): Effect.Effect<void> =>
    Effect.suspend(() =>
      write(
        name,
        writes.map(({ item }) => item),
      ),
    ).pipe(
      Effect.exit,
      Effect.flatMap((exit) => {
        if (writes.length > 1 && Exit.hasDies(exit)) {
          return Effect.forEach(writes, (one) => writeAll(name, [one]), { discard: true });
        }
        for (const [at, { done }] of writes.entries()) {
          Deferred.doneUnsafe(
            done,
            Exit.map(exit, (results) => results[at]!),
          );
        }
        return Effect.void;
      }),
    );

  const drain = (name: number, lane: Lane<A, B, E>) =>
    Effect.gen(function* () {
      // Items that arrive in the same moment share a batch.
      yield* Effect.yieldNow;
      while (lane.waiting.size > 0) {
        const writes = Array.from(Iterable.take(lane.waiting, batch));
        for (const one of writes) lane.waiting.delete(one);
        yield* writeAll(name, writes);
      }
      // Nothing may yield between the last look and this: an item could arrive unseen.
      lane.writers--;
      if (lane.writers === 0) lanes.delete(name);
    }).pipe(Effect.uninterruptible, Effect.forkIn(scope, { startImmediately: true }));

  return (name: number, item: A, timeout: number) =>
    Effect.uninterruptibleMask((restore) =>
      Effect.suspend(() => {
        if (scope.state._tag === "Closed") return Effect.interrupt;
        let lane = lanes.get(name);
        if (lane === undefined) lanes.set(name, (lane = { waiting: new Set(), writers: 0 }));
        const { waiting } = lane;
        const one: Write<A, B, E> = { item, done: Deferred.makeUnsafe() };
        waiting.add(one);
        const timer = setTimeout(() => {
          const late = waiting.delete(one) ? busy : new StorageUnavailable({ cause: noAnswer });
          Deferred.doneUnsafe(one.done, Exit.fail(late));
        }, timeout);
        const result = restore(Deferred.await(one.done)).pipe(
          Effect.onInterrupt(() =>
            waiting.delete(one) ? Effect.void : Effect.exit(Deferred.await(one.done)),
          ),
          Effect.ensuring(Effect.sync(() => clearTimeout(timer))),
        );
        if (lane.writers >= writers) return result;
        lane.writers++;
        return Effect.andThen(drain(name, lane), result);
      }),
    );
});

const noAnswer = new Error("no answer in time");
