/**
 * Gathers writes that arrive together into one statement. Who comes alone waits for nobody; who comes
 * while a statement is under way joins the next.
 */
import { Cause, Deferred, Effect, Exit } from "effect";

interface Waiting<A, B, E> {
  readonly item: A;
  readonly done: Deferred.Deferred<B, E>;
}

interface Lane<A, B, E> {
  readonly waiting: Set<Waiting<A, B, E>>;
  writers: number;
}

const takeFirst = <A>(set: Set<A>, most: number): ReadonlyArray<A> => {
  const first: Array<A> = [];
  for (const one of set) {
    if (first.length === most) break;
    first.push(one);
    set.delete(one);
  }
  return first;
};

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
 * everyone's, because the write may have taken place. Who is interrupted while an item waits takes it
 * back; while it is written, the interruption is over when the write is.
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

  const writeOne = (name: number, { done, item }: Waiting<A, B, E>) =>
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
        if (lane.writers === 0 && lane.waiting.size === 0) lanes.delete(name);
      };
      return Effect.ensuring(work(name, lane, leave), Effect.sync(leave));
    }).pipe(Effect.uninterruptible);

  /** Writes until nothing waits; `leave` is called in the same moment that this is seen. */
  const work = (name: number, lane: Lane<A, B, E>, leave: () => void) =>
    Effect.gen(function* () {
      while (lane.waiting.size > 0) {
        const batch = takeFirst(lane.waiting, most);
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
    Effect.uninterruptibleMask((restore) => {
      let lane = lanes.get(name);
      if (lane === undefined) lanes.set(name, (lane = { waiting: new Set(), writers: 0 }));
      if (lane.waiting.size >= waiting) return Effect.fail(full);
      const one = { item, done: Deferred.makeUnsafe<B, E>() };
      lane.waiting.add(one);
      const result = Effect.onInterrupt(restore(Deferred.await(one.done)), () =>
        lane.waiting.delete(one) ? Effect.void : Effect.exit(Deferred.await(one.done)),
      );
      if (lane.writers >= writers) return result;
      lane.writers++;
      return Effect.andThen(Effect.forkIn(drain(name, lane), scope), result);
    });
});
