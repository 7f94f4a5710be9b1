import { Context, Effect, Layer } from "effect";

/** The exit code after a second signal, which ends the process without waiting for answers. */
const immediateExitCode = 130;

/**
 * How long repeated signals count as one, in milliseconds. systemd and terminals signal a whole process group, and npm
 * and pnpm then forward the signal to the server again.
 */
const forwardingMillis = 300;

/** The phase of the server, and the signal that stops it. */
export class Lifecycle extends Context.Service<
  Lifecycle,
  {
    phase: "starting" | "serving" | "stopping";
    /** The signal that stops the server; `null` if none has arrived. */
    signal: NodeJS.Signals | null;
  }
>()("@parley/server/Lifecycle") {
  /** Watches for SIGINT and SIGTERM. A second signal ends the process immediately. */
  static readonly layer = Layer.effect(
    Lifecycle,
    Effect.gen(function* () {
      const lifecycle: Lifecycle["Service"] = { phase: "starting", signal: null };
      let firstSignalAt = Infinity;
      const noteSignal = (signal: NodeJS.Signals) => {
        if (performance.now() - firstSignalAt > forwardingMillis) process.exit(immediateExitCode);
        if (lifecycle.signal !== null) return;
        firstSignalAt = performance.now();
        lifecycle.phase = "stopping";
        lifecycle.signal = signal;
      };
      const signals = ["SIGINT", "SIGTERM"] as const;
      yield* Effect.acquireRelease(
        // Prepended so that `noteSignal` runs before the listener of `runMain`, which interrupts the program.
        Effect.sync(() => signals.forEach((signal) => process.prependListener(signal, noteSignal))),
        () => Effect.sync(() => signals.forEach((signal) => process.off(signal, noteSignal))),
      );
      return lifecycle;
    }),
  );
}
