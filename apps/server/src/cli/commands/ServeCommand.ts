import { setFlagsFromString } from "node:v8";
import { Effect, Layer, Logger } from "effect";
import { makeCommand } from "../Declaration.ts";
import { hasTerminal, stopOnHangup, stopWithScript } from "../../StopSignals.ts";

/** Without a terminal a SIGHUP reloads documents, so it must not end a server that is still starting. */
const ignoreHangup = Effect.sync(() => process.on("SIGHUP", () => {}));

/**
 * Two flags of V8, set before the code of the server is loaded:
 *
 * - V8 allocates all new objects as young ones. By default, it allocates the objects of some places in the code as old,
 *   once objects from there have lived for a long time. Only a major collection then frees the garbage of requests:
 *   asks cost 15 % more, and histories 23 %.
 * - The heap grows by at most 80 % between major collections. By default it grows up to fourfold, and a full server
 *   uses 740 MB instead of 480 MB.
 */
const setHeapFlags = Effect.sync(() =>
  ["--no-allocation-site-pretenuring", "--heap-growing-percent=80"].forEach(setFlagsFromString),
);

export const serve = makeCommand("serve", {
  description: "Serve the general and the answers interface until stopped",
  examples: { "parley serve": "Start the server with the settings in the environment" },
  flags: {},
  run: Effect.fnUntraced(
    function* () {
      yield* hasTerminal ? stopOnHangup : ignoreHangup;
      yield* stopWithScript;
      yield* setHeapFlags;
      // Loaded here, because no other command needs the listeners.
      const { layerServer } = yield* Effect.promise(() => import("../../Server.ts"));
      return yield* Layer.launch(layerServer);
    },
    Effect.scoped,
    // Supervisors take any exit code other than 0 for a failure.
    Effect.onInterrupt(() => Effect.sync(() => (process.exitCode = 0))),
    Effect.provideService(Logger.LogToStderr, false),
  ),
});
