/**
 * A server that is nothing but its database: prints one line, the url or why there is none, and runs
 * until it is stopped.
 */
import * as NodeRuntime from "@effect/platform-node/NodeRuntime";
import { Console, Effect, Logger, Redacted, Schedule } from "effect";
import { existsSync } from "node:fs";
import { embeddedPostgres } from "../../src/embedded/EmbeddedPostgres.ts";

/** It drains until the second of these exists. */
const [, , dataDir = "", drained = "/"] = process.argv;

Effect.gen(function* () {
  const url = (yield* embeddedPostgres(dataDir))("parley");
  // Closed before the database is, as a server that drains.
  yield* Effect.addFinalizer(() =>
    Effect.andThen(
      Effect.repeat(
        Effect.sync(() => existsSync(drained)),
        { until: (is) => is, schedule: Schedule.spaced("20 millis") },
      ),
      Console.log("drained"),
    ),
  );
  yield* Console.log(Redacted.value(url));
  return yield* Effect.never;
}).pipe(
  Effect.catchTag("EmbeddedFailed", ({ message }) => Console.log(`failed ${message}`)),
  Effect.scoped,
  Effect.provide(Logger.layer([])),
  NodeRuntime.runMain,
);
