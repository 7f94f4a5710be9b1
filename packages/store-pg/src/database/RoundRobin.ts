/**
 * Serves tenants in turn, so that much work of one tenant does not delay another's. (Effect's PartitionedSemaphore
 * keeps a partition in its place after it was served, so that one behind it can starve.)
 */
import { Deferred, Effect, Exit } from "effect";

/** Runs the work in a turn of its tenant, or fails with `late` if none was free within so many milliseconds. */
export type RoundRobin<Tenant> = <A, E, R, E2>(
  tenant: Tenant,
  work: Effect.Effect<A, E, R>,
  timeout: number,
  late: E2,
) => Effect.Effect<A, E | E2, R>;

/** At most `turns` run at a time. */
export const makeRoundRobin = <Tenant>(turns: number): RoundRobin<Tenant> => {
  let free = turns;
  /** Waiting work by tenant; the first tenant is served next. */
  const queues = new Map<Tenant, Set<Deferred.Deferred<void, any>>>();

  const leave = (tenant: Tenant, turn: Deferred.Deferred<void, any>) => {
    const queue = queues.get(tenant);
    const waited = queue?.delete(turn) ?? false;
    if (queue?.size === 0) queues.delete(tenant);
    return waited;
  };

  const serveNext = () => {
    const [next] = queues;
    if (next === undefined) {
      free++;
      return;
    }
    const [tenant, queue] = next;
    const [turn] = queue;
    queue.delete(turn!);
    queues.delete(tenant);
    if (queue.size > 0) queues.set(tenant, queue);
    Deferred.doneUnsafe(turn!, Exit.void);
  };

  // Work can end within this very loop, as soon as it is served: recursion would overflow the stack.
  let released = 0;
  const release = Effect.sync(() => {
    if (released++ > 0) return;
    for (; released > 0; released--) serveNext();
  });

  return (tenant, work, timeout, late) =>
    Effect.uninterruptibleMask((restore) =>
      Effect.suspend(() => {
        const served = Effect.ensuring(restore(work), release);
        if (free > 0) {
          free--;
          return served;
        }
        const turn = Deferred.makeUnsafe<void, typeof late>();
        queues.set(tenant, (queues.get(tenant) ?? new Set()).add(turn));
        let gaveUp = false;
        // Effect's timers do not fire in an uninterruptible region.
        const timer = setTimeout(() => {
          gaveUp = leave(tenant, turn);
          if (gaveUp) Deferred.doneUnsafe(turn, Exit.fail(late));
        }, timeout);
        return restore(Deferred.await(turn)).pipe(
          // The turn may have been granted in the moment of the interruption.
          Effect.onInterrupt(() => (gaveUp || leave(tenant, turn) ? Effect.void : release)),
          Effect.ensuring(Effect.sync(() => clearTimeout(timer))),
          Effect.andThen(served),
        );
      }),
    );
};
