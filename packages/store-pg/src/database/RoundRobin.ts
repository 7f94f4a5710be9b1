/**
 * Turns that go round the tenants, so that a crowd of one tenant's work does not delay another's. (Effect's
 * PartitionedSemaphore leaves a partition in its place after it was served: one behind it can wait forever.)
 */
import { Deferred, Effect, Exit } from "effect";

/** Does the work in a turn of its tenant, or fails with `late` if none came within so many milliseconds. */
export type RoundRobin<Tenant> = <A, E, R, E2>(
  tenant: Tenant,
  work: Effect.Effect<A, E, R>,
  timeout: number | null,
  late: E2,
) => Effect.Effect<A, E | E2, R>;

/** At most so many work at a time. */
export const makeRoundRobin = <Tenant>(turns: number): RoundRobin<Tenant> => {
  let free = turns;
  /** The work that waits, by tenant; the first tenant is served next. */
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

  // Work can end while it is being served, and so within this very loop: recursion would overflow the stack.
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
        // A timer of Node's, because Effect's would not end the waiting in an uninterruptible region.
        const timer =
          timeout === null
            ? undefined
            : setTimeout(() => {
                gaveUp = leave(tenant, turn);
                if (gaveUp) Deferred.doneUnsafe(turn, Exit.fail(late));
              }, timeout);
        return restore(Deferred.await(turn)).pipe(
          // Its turn may have come at the moment of the interruption.
          Effect.onInterrupt(() => (gaveUp || leave(tenant, turn) ? Effect.void : release)),
          Effect.ensuring(Effect.sync(() => clearTimeout(timer))),
          Effect.andThen(served),
        );
      }),
    );
};
