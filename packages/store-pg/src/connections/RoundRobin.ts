/**
 * Grants slots to tenants in rotation, so that a busy tenant does not delay the others. (Effect's PartitionedSemaphore
 * keeps a partition in its place after serving it, so the partition behind it can starve.)
 */
import { Effect } from "effect";

export interface RoundRobin<Tenant> {
  /** Waits until the tenant is granted a slot. */
  readonly acquire: (tenant: Tenant) => Effect.Effect<void>;
  readonly release: () => void;
}

/** Creates a round robin with the given number of slots. */
export const makeRoundRobin = <Tenant>(slots: number): RoundRobin<Tenant> => {
  let freeSlots = slots;
  let pendingReleases = 0;
  /** For each tenant, the functions that grant a slot to its waiting work. The first tenant is served next. */
  const queues = new Map<Tenant, Set<() => void>>();

  const serveNext = () => {
    for (const [tenant, queue] of queues) {
      const [grant] = queue;
      queue.delete(grant!);
      queues.delete(tenant);
      if (queue.size > 0) queues.set(tenant, queue);
      return grant!();
    }
    freeSlots++;
  };

  return {
    acquire: (tenant) =>
      Effect.callback((resume) => {
        const grant = () => resume(Effect.void);
        if (freeSlots > 0) {
          freeSlots--;
          return grant();
        }
        const queue = queues.get(tenant) ?? new Set();
        queues.set(tenant, queue.add(grant));
        return Effect.sync(() => {
          queue.delete(grant);
          if (queue.size === 0) queues.delete(tenant);
        });
      }),
    release: () => {
      // Work that ends as soon as it gets a slot calls `release` within this loop: recursion would overflow the stack.
      if (pendingReleases++ > 0) return;
      for (; pendingReleases > 0; pendingReleases--) serveNext();
    },
  };
};
