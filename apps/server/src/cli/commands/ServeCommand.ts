import { setFlagsFromString } from "node:v8";
import { Effect, Layer, Logger } from "effect";
import { makeCommand } from "../Declaration.ts";
import { hasTerminal, stopOnHangup, stopWithScript } from "../../StopSignals.ts";

/** Without a terminal a SIGHUP reloads documents, so it must not end a server that is still starting. */
const ignoreHangup = Effect.sync(() => process.on("SIGHUP", () => {}));

/**
 * Lets V8's heap grow by 60 % before old objects are collected. By default it grows up to fourfold, and the server uses
 * 850 MB instead of 450 MB while it is full.
 */
const limitHeapGrowth = Effect.sync(() => setFlagsFromString("--heap-growing-percent=60"));

export const serve = makeCommand("serve", {
  description: "Serve both interfaces until stopped",
  examples: { "parley serve": "Start the server with the settings in the environment" },
  flags: {},
  run: Effect.fnUntraced(
    function* () {
      yield* hasTerminal ? stopOnHangup : ignoreHangup;
      yield* stopWithScript;
      yield* limitHeapGrowth;
      // The other commands need neither HTTP nor language models.
      const { layerServer } = yield* Effect.promise(() => import("../../Server.ts"));
      return yield* Layer.launch(layerServer);
    },
    Effect.scoped,
    // Supervisors take any exit code other than 0 for a failure.
    Effect.onInterrupt(() => Effect.sync(() => (process.exitCode = 0))),
    Effect.provideService(Logger.LogToStderr, false),
  ),
});
