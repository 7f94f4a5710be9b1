/**
 * Serves tenants in turn, so that much work of one tenant does not delay another's. (Effect's PartitionedSemaphore
 * keeps a partition in its place after it was served, so that one behind it can starve.)
 */
import { Effect } from "effect";

export interface RoundRobin<Tenant> {
  /** Waits for a turn of the tenant. */
  readonly take: (tenant: Tenant) => Effect.Effect<void>;
  readonly end: () => void;
}

/** At most `turns` are taken at a time. */
export const makeRoundRobin = <Tenant>(turns: number): RoundRobin<Tenant> => {
  let free = turns;
  let ended = 0;
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

  return {
    take: (tenant) =>
      Effect.callback((resume) => {
        const grant = () => resume(Effect.void);
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
      }),
    end: () => {
      // Work that ends as soon as it is served ends its turn within this very loop: recursion would overflow the stack.
      if (ended++ > 0) return;
      for (; ended > 0; ended--) serveNext();
    },
  };
};
