/**
 * A runtime that provides the services of a layer to code that does not use Effect. Unlike a `ManagedRuntime`, it
 * releases the services only after the runs in progress have ended.
 */
import { ManagedRuntime, type Context, type Layer } from "effect";

/** Builds the layer's services on the first run. `dispose` releases them after the last run has ended. */
export const makeDrainingRuntime = <R, E>(layer: Layer.Layer<R, E>) => {
  const runtime = ManagedRuntime.make(layer);
  const runs = new Set<Promise<unknown>>();
  let disposal: Promise<void> | undefined;
  return {
    /**
     * Runs `use` with the layer's services. The first call builds the services; if that fails, every call rejects with
     * the layer's error. After `dispose`, a call runs `afterDispose` instead.
     */
    run: async <A>(
      use: (context: Context.Context<R>) => Promise<A>,
      afterDispose: () => Promise<A>,
    ): Promise<A> => {
      if (disposal !== undefined) return afterDispose();
      const result = runtime.context().then(use);
      runs.add(result);
      try {
        return await result;
      } finally {
        runs.delete(result);
      }
    },
    /** Waits for the runs in progress, then releases the services. A run that waits for this promise never ends. */
    dispose: (): Promise<void> => {
      disposal ??= Promise.allSettled(runs).then(() => runtime.dispose());
      return disposal;
    },
  };
};
