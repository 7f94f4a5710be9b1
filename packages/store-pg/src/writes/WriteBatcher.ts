/**
 * Batches writes. Each chatbot has a lane with one statement in flight; items that arrive meanwhile share the next one. A
 * second statement at the same time would make both smaller, which takes a fifth more processor time an ask.
 */
import { StorageUnavailable, type Overloaded } from "@parley/core/ports";
import { Effect, Exit, Fiber, Iterable, type Context } from "effect";
import { deadlines, noResponseError, timeLeft, withDeadline } from "../connections/Deadlines.ts";
import { databaseOverload } from "../connections/PgErrors.ts";

interface PendingWrite<A, B, E> {
  readonly item: A;
  readonly context: Context.Context<never>;
  finish: (exit: Exit.Exit<B, E | Overloaded | StorageUnavailable>) => void;
}

type Lane<A, B, E> = Set<PendingWrite<A, B, E>>;

/**
 * Creates a function that writes one item for a chatbot. `writeItems` returns one result for each item, in order; if it
 * fails, every item fails. A batch that dies has written nothing; its items are then written one by one. When
 * {@link timeLeft} or the time limit of a store call runs out, an item fails: with `Overloaded` if it is still queued,
 * with `StorageUnavailable` if it is in flight. An interruption removes a queued item, but waits for one in flight.
 */
export const makeWriteBatcher = Effect.fnUntraced(function* <A, B, E>(
  writeItems: (chatbot: number, items: ReadonlyArray<A>) => Effect.Effect<ReadonlyArray<B>, E>,
  /** The maximum number of items in a batch. */
  maxItems: number,
) {
  const scope = yield* Effect.scope;
  const lanes = new Map<number, Lane<A, B, E>>();

  const writeAll = (
    chatbot: number,
    writes: ReadonlyArray<PendingWrite<A, B, E>>,
  ): Effect.Effect<void> => {
    const items = writes.map(({ item }) => item);
    // Without its own deadline, the statement would inherit that of the request that started this fiber.
    const statement = withDeadline(deadlines.storeCall)(
      Effect.suspend(() => writeItems(chatbot, items)),
      // A writer goes on with the items of later requests, which have log fields and spans of their own.
    ).pipe(Effect.updateContext((_: Context.Context<never>) => writes[0]!.context));
    return Effect.flatMap(Effect.exit(statement), (exit) => {
      if (writes.length > 1 && Exit.hasDies(exit)) {
        return Effect.forEach(writes, (write) => writeAll(chatbot, [write]), { discard: true });
      }
      for (const [index, write] of writes.entries())
        write.finish(Exit.map(exit, (results) => results[index]!));
      return Effect.void;
    });
  };

  /**
   * Whether the latest batch, for any chatbot, had several items. If so, a writer yields once before it starts, because
   * more items are probably arriving at the same moment.
   */
  let hadSeveralItems = false;
  const drain = (chatbot: number, lane: Lane<A, B, E>): Effect.Effect<void> =>
    Effect.suspend(() => {
      const writes = Array.from(Iterable.take(lane, maxItems));
      for (const write of writes) lane.delete(write);
      if (writes.length > 0) {
        hadSeveralItems = writes.length > 1;
        return Effect.flatMap(writeAll(chatbot, writes), () => drain(chatbot, lane));
      }
      // Nothing may yield between the last look at the lane and this line: an item could arrive unseen.
      lanes.delete(chatbot);
      return Effect.void;
    });

  return (chatbot: number, item: A) =>
    Effect.flatMap(timeLeft, (millisLeft) =>
      Effect.contextWith((context: Context.Context<never>) =>
        Effect.callback<B, E | Overloaded | StorageUnavailable>((resume) => {
          if (scope.state._tag === "Closed") return resume(Effect.interrupt);
          const busyLane = lanes.get(chatbot);
          const lane: Lane<A, B, E> = busyLane ?? new Set();
          const timer = setTimeout(
            () => write.finish(Exit.fail(lane.delete(write) ? batchOverload : unknownOutcome)),
            Math.min(millisLeft, deadlines.storeCall),
          );
          const write: PendingWrite<A, B, E> = {
            item,
            context,
            finish: (exit) => {
              clearTimeout(timer);
              resume(exit);
            },
          };
          lane.add(write);
          if (busyLane === undefined) {
            lanes.set(chatbot, lane);
            const begin = hadSeveralItems
              ? Effect.andThen(Effect.yieldNow, drain(chatbot, lane))
              : drain(chatbot, lane);
            Fiber.runIn(Effect.runForkWith(context)(begin, { uninterruptible: true }), scope);
          }
          // After an interruption, the write's end or its timeout only completes the interruption: nobody reads the
          // result.
          return Effect.callback<void>((endInterruption) => {
            write.finish = () => {
              clearTimeout(timer);
              endInterruption(Effect.void);
            };
            if (lane.delete(write)) write.finish(Exit.interrupt());
          });
        }),
      ),
    );
});

const batchOverload = databaseOverload("database_busy");
const unknownOutcome = new StorageUnavailable({ cause: noResponseError, reason: "timeout" });
