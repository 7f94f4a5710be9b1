/**
 * Runs promises with the services of a layer, which is released after the promises in progress. (A `ManagedRuntime`
 * by itself interrupts what is in progress.)
 */
import { ManagedRuntime, type Context, type Layer } from "effect";

/** The services of a layer, for promises. */
export interface DrainingRuntime<R> {
  /**
   * Runs `use` with the services of the layer. The first call builds the layer; if that fails, the promise rejects
   * with the same error. After `dispose`, it runs `disposed` instead.
   */
  readonly run: <A>(
    use: (context: Context.Context<R>) => Promise<A>,
    disposed: () => Promise<A>,
  ) => Promise<A>;
  /**
   * Waits for the promises in progress and releases what the layer acquired; interrupts the building of the layer. A
   * promise in progress must not wait for it: neither would end.
   */
  readonly dispose: () => Promise<void>;
}

/** A runtime for this layer, which is built at the first call of `run`. */
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
