/**
 * Gathers writes that arrive together into one statement. Who comes alone waits for nobody; who comes
 * while a statement is under way joins the next.
 */
import { Cause, Deferred, Effect, Exit } from "effect";

interface Lane<A, B, E> {
  readonly waiting: Array<{ readonly item: A; readonly done: Deferred.Deferred<B, E> }>;
  writers: number;
}

export interface GatherOptions<E> {
  /** Statements of one lane under way at once. */
  readonly writers: number;
  /** Items of one statement. */
  readonly most: number;
  /** Items that wait in one lane; more are refused with `full`. */
  readonly waiting: number;
  readonly full: E;
}

/**
 * Makes a function that writes one item of a lane, and gathers what waits in a lane into one call of
 * `write`, which gives as many results as it got items, in their order. When a gathered write meets a
 * defect, its items are written one by one, so that one bad item fails alone; an expected failure is
 * everyone's, because the write may have taken place.
 */
export const gather = Effect.fnUntraced(function* <A, B, E>(
  write: (lane: number, items: ReadonlyArray<A>) => Effect.Effect<ReadonlyArray<B>, E>,
  { full, most, waiting, writers }: GatherOptions<E>,
) {
  const scope = yield* Effect.scope;
  const lanes = new Map<number, Lane<A, B, E>>();

  /** What `write` throws is a defect, too. */
  const written = (name: number, items: ReadonlyArray<A>) =>
    Effect.suspend(() => write(name, items));

  const writeOne = (name: number, { done, item }: Lane<A, B, E>["waiting"][number]) =>
    Effect.flatMap(Effect.exit(written(name, [item])), (exit) =>
      Deferred.done(
        done,
        Exit.map(exit, (results) => results[0]!),
      ),
    );

  const drain = (name: number, lane: Lane<A, B, E>) =>
    Effect.suspend(() => {
      let left = false;
      const leave = () => {
        if (left) return;
        left = true;
        lane.writers--;
        if (lane.writers === 0 && lane.waiting.length === 0) lanes.delete(name);
      };
      return Effect.ensuring(work(name, lane, leave), Effect.sync(leave));
    }).pipe(Effect.uninterruptible);

  /** Writes until nothing waits; `leave` is called in the same moment that this is seen. */
  const work = (name: number, lane: Lane<A, B, E>, leave: () => void) =>
    Effect.gen(function* () {
      while (lane.waiting.length > 0) {
        const batch = lane.waiting.splice(0, most);
        if (batch.length === 1) {
          yield* writeOne(name, batch[0]!);
          continue;
        }
        const exit = yield* Effect.exit(
          written(
            name,
            batch.map(({ item }) => item),
          ),
        );
        if (Exit.isFailure(exit) && !Cause.hasFails(exit.cause)) {
          yield* Effect.forEach(batch, (one) => writeOne(name, one), { discard: true });
          continue;
        }
        for (const [at, { done }] of batch.entries()) {
          Deferred.doneUnsafe(
            done,
            Exit.map(exit, (results) => results[at]!),
          );
        }
      }
      leave();
    });

  return (name: number, item: A): Effect.Effect<B, E> =>
    Effect.suspend(() => {
      let lane = lanes.get(name);
      if (lane === undefined) lanes.set(name, (lane = { waiting: [], writers: 0 }));
      if (lane.waiting.length >= waiting) return Effect.fail(full);
      const done = Deferred.makeUnsafe<B, E>();
      lane.waiting.push({ item, done });
      if (lane.writers >= writers) return Deferred.await(done);
      lane.writers++;
      return Effect.andThen(Effect.forkIn(drain(name, lane), scope), Deferred.await(done));
    });
});
