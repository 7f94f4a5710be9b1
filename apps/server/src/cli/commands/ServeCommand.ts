import { Effect, Layer, Logger } from "effect";
import { Command } from "effect/cli";

/** A SIGHUP reloads documents, so it must not end a server that is still starting. */
const ignoreHangup = () => {};

export const serve = Command.make("serve", {}, () =>
  Effect.gen(function* () {
    process.on("SIGHUP", ignoreHangup);
    // The other commands need neither HTTP nor language models.
    const { layerServer } = yield* Effect.promise(() => import("../../Server.ts"));
    return yield* Layer.launch(layerServer);
  }).pipe(
    // Supervisors take another exit code than 0 for a failure.
    Effect.onInterrupt(() => Effect.sync(() => (process.exitCode = 0))),
    Effect.ensuring(Effect.sync(() => process.off("SIGHUP", ignoreHangup))),
    Effect.provideService(Logger.LogToStderr, false),
  ),
).pipe(
  Command.withDescription("Serve both interfaces until stopped"),
  Command.withExamples([
    { command: "parley serve", description: "Serve with the settings of the environment" },
  ]),
);
