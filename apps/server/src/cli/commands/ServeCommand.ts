import { Effect, Layer, Logger } from "effect";
import { Command } from "effect/cli";
import { hasTerminal, stopOnHangup, stopWithScript } from "../../StopSignals.ts";

const ignore = () => {};

/** Without a terminal a SIGHUP reloads documents, so it must not end a server that is still starting. */
const ignoreHangup = Effect.acquireRelease(
  Effect.sync(() => process.on("SIGHUP", ignore)),
  () => Effect.sync(() => process.off("SIGHUP", ignore)),
);

export const serve = Command.make("serve", {}, () =>
  Effect.gen(function* () {
    yield* hasTerminal ? stopOnHangup : ignoreHangup;
    yield* stopWithScript;
    // The other commands need neither HTTP nor language models.
    const { layerServer } = yield* Effect.promise(() => import("../../Server.ts"));
    return yield* Layer.launch(layerServer);
  }).pipe(
    Effect.scoped,
    // Supervisors take another exit code than 0 for a failure.
    Effect.onInterrupt(() => Effect.sync(() => (process.exitCode = 0))),
    Effect.provideService(Logger.LogToStderr, false),
  ),
).pipe(
  Command.withDescription("Serve both interfaces until stopped"),
  Command.withExamples([
    { command: "parley serve", description: "Serve with the settings of the environment" },
  ]),
);
