/**
 * A layer for code that does not use Effect, released after what is under way. (A `ManagedRuntime` by itself
 * interrupts that.)
 */
import { ManagedRuntime, type Context, type Layer } from "effect";

export interface DrainingRuntime<R> {
  /**
   * Runs what needs the layer's services; builds them first, when it is called for the first time, and rejects with
   * what that fails with. `disposed` instead, if it is too late for that.
   */
  readonly run: <A>(
    use: (context: Context.Context<R>) => Promise<A>,
    disposed: () => Promise<A>,
  ) => Promise<A>;
  /**
   * Waits for what runs and releases what the layer acquired; ends its building if that is not over. What runs must
   * not wait for it: neither would end.
   */
  readonly dispose: () => Promise<void>;
}

export const makeDrainingRuntime = <R, E>(layer: Layer.Layer<R, E>): DrainingRuntime<R> => {
  const runtime = ManagedRuntime.make(layer);
  const running = new Set<Promise<unknown>>();
  let disposing: Promise<void> | undefined;
  return {
    run: async (use, disposed) => {
      if (disposing === undefined && runtime.cachedContext === undefined) {
        await runtime.context().catch((cause: unknown) => {
          if (disposing === undefined) throw cause;
        });
      }
      const context = runtime.cachedContext;
      if (disposing !== undefined || context === undefined) return disposed();
      const one = Promise.resolve(context).then(use);
      running.add(one);
      try {
        return await one;
      } finally {
        running.delete(one);
      }
    },
    dispose: () => {
      disposing ??= Promise.allSettled(running).then(() => runtime.dispose());
      return disposing;
    },
  };
};
