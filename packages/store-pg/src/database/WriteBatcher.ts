/**
 * Batches writes. Each chatbot has a lane with up to `writers` statements in flight. Writes that arrive while all of
 * them are in flight share the next one.
 */
import { StorageUnavailable, type Overloaded } from "@parley/core/ports";
import { Effect, Exit, Fiber, Iterable, type Context } from "effect";
import { deadlines, endAfter } from "./Deadlines.ts";
import { overloaded } from "./PgErrors.ts";

interface PendingWrite<A, B, E> {
  readonly item: A;
  done: (exit: Exit.Exit<B, E | Overloaded | StorageUnavailable>) => void;
}

interface Lane<A, B, E> {
  readonly waiting: Set<PendingWrite<A, B, E>>;
  writers: number;
}

/**
 * Makes a function that writes one item of a chatbot. `writeItems` returns one result for each item, in their order; its
 * failure is that of every item, because any may have been written. A batch that dies has written nothing; its items
 * are written one by one, so that only the item with the defect dies. After `timeout` milliseconds an item fails: with
 * `Overloaded` if it still waits, with `StorageUnavailable` if it is in flight. An interruption removes an item that
 * waits, and waits for the end of a write in flight.
 */
export const makeWriteBatcher = Effect.fnUntraced(function* <A, B, E>(
  writeItems: (chatbot: number, items: ReadonlyArray<A>) => Effect.Effect<ReadonlyArray<B>, E>,
  /** The number of batches of one lane in flight at a time, and of the items of a batch. */
  { batch, writers }: { readonly batch: number; readonly writers: number },
) {
  const scope = yield* Effect.scope;
  const lanes = new Map<number, Lane<A, B, E>>();

  const writeAll = (
    chatbot: number,
    writes: ReadonlyArray<PendingWrite<A, B, E>>,
  ): Effect.Effect<void> => {
    const items = writes.map(({ item }) => item);
    // A deadline of its own: the fiber inherits that of the request that started it.
    const statement = endAfter(deadlines.storeCall)(
      Effect.suspend(() => writeItems(chatbot, items)),
    );
    return Effect.flatMap(Effect.exit(statement), (exit) => {
      if (writes.length > 1 && Exit.hasDies(exit)) {
        return Effect.forEach(writes, (write) => writeAll(chatbot, [write]), { discard: true });
      }
      for (const [at, write] of writes.entries())
        write.done(Exit.map(exit, (results) => results[at]!));
      return Effect.void;
    });
  };

  /** Whether the latest batch had several items: then more may arrive in the same moment as the first of the next. */
  let isShared = false;
  const drain = (chatbot: number, lane: Lane<A, B, E>): Effect.Effect<void> =>
    Effect.suspend(() => {
      const writes = Array.from(Iterable.take(lane.waiting, batch));
      for (const write of writes) lane.waiting.delete(write);
      if (writes.length > 0) {
        isShared = writes.length > 1;
        return Effect.flatMap(writeAll(chatbot, writes), () => drain(chatbot, lane));
      }
      // Nothing may yield between the last look and this: an item could arrive unseen.
      lane.writers--;
      if (lane.writers === 0) lanes.delete(chatbot);
      return Effect.void;
    });

  // A callback, without a fiber, a deferred or finalizers: each ask makes two such writes.
  return (chatbot: number, item: A, timeout: number) =>
    Effect.contextWith((context: Context.Context<never>) =>
      Effect.callback<B, E | Overloaded | StorageUnavailable>((resume) => {
        if (scope.state._tag === "Closed") return resume(Effect.interrupt);
        let lane = lanes.get(chatbot);
        if (lane === undefined) lanes.set(chatbot, (lane = { waiting: new Set(), writers: 0 }));
        const { waiting } = lane;
        const timer = setTimeout(
          () => write.done(Exit.fail(waiting.delete(write) ? overloaded : noResponse)),
          timeout,
        );
        const write: PendingWrite<A, B, E> = {
          item,
          done: (exit) => {
            clearTimeout(timer);
            resume(exit);
          },
        };
        waiting.add(write);
        if (lane.writers < writers) {
          lane.writers++;
          const begin =
            lane.writers > 1 || isShared
              ? Effect.andThen(Effect.yieldNow, drain(chatbot, lane))
              : drain(chatbot, lane);
          Fiber.runIn(Effect.runForkWith(context)(begin, { uninterruptible: true }), scope);
        }
        return Effect.callback<void>((ended) => {
          write.done = () => {
            clearTimeout(timer);
            ended(Effect.void);
          };
          if (waiting.delete(write)) write.done(Exit.interrupt());
        });
      }),
    );
});

const noResponse = new StorageUnavailable({
  cause: new Error("the database did not respond in time"),
});
