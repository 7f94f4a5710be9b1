import { setFlagsFromString } from "node:v8";
import { Effect, Layer, Logger } from "effect";
import { makeCommand } from "../Declaration.ts";
import { hasTerminal, stopOnHangup, stopWithScript } from "../../StopSignals.ts";

/** Keeps SIGHUP from ending a server that is still starting: without a terminal, the signal reloads documents. */
const ignoreHangup = Effect.sync(() => process.on("SIGHUP", () => {}));

/**
 * Sets two V8 flags before the server's code is loaded:
 *
 * - V8 allocates all new objects in the young generation. By default, it allocates objects in the old generation if
 *   earlier objects from the same place in the code have lived for a long time. Only a major collection then frees the
 *   garbage of requests: asks cost 15 % more, and histories 23 %.
 * - The heap grows by at most 80 % between major collections. By default, it grows up to fourfold, and a full server
 *   uses 740 MB instead of 480 MB.
 */
const setHeapFlags = Effect.sync(() =>
  ["--no-allocation-site-pretenuring", "--heap-growing-percent=80"].forEach(setFlagsFromString),
);

export const serve = makeCommand("serve", {
  description: "Serve the general and answers interfaces until stopped",
  examples: { "parley serve": "Start the server with the settings in the environment" },
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
    // Supervisors treat any exit code other than 0 as a failure.
    Effect.onInterrupt(() => Effect.sync(() => (process.exitCode = 0))),
    Effect.provideService(Logger.LogToStderr, false),
  ),
});
