/**
 * Serves tenants in turn, so that much work of one tenant does not delay another's. (Effect's PartitionedSemaphore
 * keeps a partition in its place after it was served, so that one behind it can starve.)
 */
import { Effect } from "effect";

/** Waits for a turn of the tenant, and returns the function that ends it. To end it twice does nothing. */
export type RoundRobin<Tenant> = (tenant: Tenant) => Effect.Effect<() => void>;

/** At most `turns` are granted at a time. */
export const makeRoundRobin = <Tenant>(turns: number): RoundRobin<Tenant> => {
  let free = turns;
  /** Those that wait for a turn, by tenant; the first tenant is served next. */
  const queues = new Map<Tenant, Set<() => void>>();

  const serveNext = () => {
    for (const [tenant, queue] of queues) {
      const [grant] = queue;
      queue.delete(grant!);
      queues.delete(tenant);
      if (queue.size > 0) queues.set(tenant, queue);
      return grant!();
    }
    free++;
  };

  let ended = 0;
  const grantTo = (resume: (turn: Effect.Effect<() => void>) => void) => {
    let isOver = false;
    const endTurn = () => {
      if (isOver) return;
      isOver = true;
      // Work that ends as soon as it is served ends its turn within this very loop: recursion would overflow the stack.
      if (ended++ > 0) return;
      for (; ended > 0; ended--) serveNext();
    };
    resume(Effect.succeed(endTurn));
  };

  return (tenant) =>
    Effect.callback((resume) => {
      const grant = () => grantTo(resume);
      if (free > 0) {
        free--;
        return grant();
      }
      const queue = queues.get(tenant) ?? new Set();
      queues.set(tenant, queue.add(grant));
      return Effect.sync(() => {
        queue.delete(grant);
        if (queue.size === 0) queues.delete(tenant);
      });
    });
};
