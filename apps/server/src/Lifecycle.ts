import { Context, Effect, Layer } from "effect";

/** The exit code of a server that did not wait for its answers. */
const abandoned = 130;

/** Whether a server is ready, and how it stops. */
export class Lifecycle extends Context.Service<
  Lifecycle,
  {
    phase: "starting" | "serving" | "stopping";
    /** Why it stops; `null`: nobody sent a signal. */
    signal: NodeJS.Signals | null;
  }
>()("@parley/server/Lifecycle") {
  /** Follows the signals of the process. The first one also interrupts the program; the second one ends the process. */
  static readonly layer = Layer.effect(
    Lifecycle,
    Effect.gen(function* () {
      const lifecycle: Lifecycle["Service"] = { phase: "starting", signal: null };
      const stop = (signal: NodeJS.Signals) => {
        if (lifecycle.signal !== null) process.exit(abandoned);
        Object.assign(lifecycle, { phase: "stopping", signal });
      };
      const signals = ["SIGINT", "SIGTERM"] as const;
      yield* Effect.acquireRelease(
        Effect.sync(() => signals.forEach((signal) => process.on(signal, stop))),
        () => Effect.sync(() => signals.forEach((signal) => process.off(signal, stop))),
      );
      return lifecycle;
    }),
  );
}
