/**
 * One run of PostgreSQL, as a child of this process.
 */
import { Data, Deferred, Effect } from "effect";
import { spawn } from "node:child_process";
import { closeSync, openSync } from "node:fs";
import type { Binaries } from "./Binaries.ts";
import { accessOf, dataOf } from "./Home.ts";
import { lastLines, logFile, logSize } from "./LogFile.ts";
import type { RunAs } from "./OsUser.ts";
import { readPidFile } from "./PidFile.ts";
import { cleanEnvironment } from "./Run.ts";

export interface Where {
  /** The real path of PARLEY_DATA_DIR. */
  readonly dataDir: string;
  readonly home: string;
  readonly binaries: Binaries;
  readonly runAs: RunAs;
}

/** It ended before it accepted connections; `message` is the end of its log. */
export class NotStarted extends Data.TaggedError("NotStarted")<{ readonly message: string }> {}

export interface Postmaster {
  /** Completes when it has ended, with how it ended. */
  readonly ended: Effect.Effect<string>;
  /** Completes when it accepts connections. It may recover for long before. */
  readonly ready: Effect.Effect<void, NotStarted>;
  /** Disconnects everybody and ends it; gives up waiting after 40 s. */
  readonly stop: Effect.Effect<void>;
}

/** Starts it on a port of 127.0.0.1. */
export const startPostmaster = (where: Where, port: number): Effect.Effect<Postmaster> =>
  Effect.sync(() => {
    const data = dataOf(where.home);
    const log = logFile(where.dataDir);
    const logged = logSize(log);
    const ended = Deferred.makeUnsafe<string>();
    const descriptor = openSync(log, "a", 0o600);
    const settings = {
      port,
      hba_file: accessOf(where.home),
      listen_addresses: "127.0.0.1",
      unix_socket_directories: "",
      logging_collector: "off",
      log_destination: "stderr",
      log_checkpoints: "off",
      log_timezone: "UTC",
      timezone: "UTC",
    };
    const child = spawn(
      where.binaries.postgres,
      [
        "-D",
        data,
        ...Object.entries(settings).flatMap(([name, value]) => ["-c", `${name}=${value}`]),
      ],
      {
        ...where.runAs,
        cwd: "/",
        env: cleanEnvironment(),
        // A session of its own: Ctrl-C reaches this process, which drains before it stops PostgreSQL.
        detached: true,
        stdio: ["ignore", descriptor, descriptor],
      },
    );
    closeSync(descriptor);
    child.unref();
    const stopAtExit = () => child.kill("SIGINT");
    process.once("exit", stopAtExit);
    const end = (how: string) => {
      process.removeListener("exit", stopAtExit);
      Deferred.doneUnsafe(ended, Effect.succeed(how));
    };
    child.once("error", (cause) => end(cause.message));
    child.once("exit", (code, signal) => end(signal ?? `exit code ${code}`));

    const ready = Effect.gen(function* () {
      let polls = 0;
      while (!Deferred.isDoneUnsafe(ended)) {
        const file = yield* readPidFile(data);
        if (file?.pid === child.pid && file?.status === "ready") return;
        polls += 1;
        if (polls % 500 === 0) yield* Effect.logInfo(`PostgreSQL is not ready yet; see ${log}`);
        yield* Effect.sleep("20 millis");
      }
      const how = yield* Deferred.await(ended);
      return yield* new NotStarted({ message: lastLines(log, logged) || how });
    });

    const signalled = (signal: NodeJS.Signals, seconds: number) =>
      Effect.suspend(() => {
        child.ref();
        child.kill(signal);
        return Effect.timeoutOption(Deferred.await(ended), `${seconds} seconds`);
      });
    const stop = Effect.gen(function* () {
      if (Deferred.isDoneUnsafe(ended)) return;
      const fast = yield* signalled("SIGINT", 30);
      if (fast._tag === "Some") return;
      yield* Effect.logWarning(
        "PostgreSQL does not stop: it is made to, and will recover at its next start",
      );
      const immediate = yield* signalled("SIGQUIT", 10);
      if (immediate._tag === "None") yield* Effect.logError("PostgreSQL could not be stopped");
      child.unref();
    });
    return { ended: Deferred.await(ended), ready, stop };
  });
