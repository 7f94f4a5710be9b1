/**
 * A server that consists only of its database. It prints the database's URL, or "failed" and the reason. When it stops,
 * it drains until the given file exists, and prints "drained".
 */
import * as NodeRuntime from "@effect/platform-node/NodeRuntime";
import { Console, Effect, Redacted, Schedule } from "effect";
import { existsSync } from "node:fs";
import { embeddedPostgres } from "../../src/postgres/EmbeddedPostgres.ts";

const [, , dataDir = "", drainFile = "/"] = process.argv;

Effect.gen(function* () {
  const url = yield* embeddedPostgres(dataDir);
  yield* Effect.addFinalizer(() =>
    Effect.sync(() => existsSync(drainFile)).pipe(
      Effect.repeat({ until: (is) => is, schedule: Schedule.spaced("20 millis") }),
      Effect.andThen(Console.log("drained")),
    ),
  );
  yield* Console.log(Redacted.value(url));
  return yield* Effect.never;
}).pipe(
  Effect.tapErrorTag("EmbeddedFailed", ({ message }) => Console.log(`failed ${message}`)),
  Effect.scoped,
  NodeRuntime.runMain({ disableErrorReporting: true }),
);
