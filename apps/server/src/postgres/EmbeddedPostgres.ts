/**
 * A PostgreSQL of the server's own in PARLEY_DATA_DIR. Only this machine can reach it. It runs as long as the scope is
 * open, and is started again if it ends before.
 *
 * An advisory lock in the database `postgres` distinguishes a PostgreSQL in use from an orphan, whose server was
 * killed. Without that lock a server stops no PostgreSQL but its own child. PostgreSQL itself makes sure that one
 * postmaster at a time runs on a directory.
 */
import * as PgConnection from "@effect/sql-pg/PgConnection";
import { describeCause } from "@parley/core";
import { Data, Effect, Option, Queue, type Redacted, Schedule, type Scope } from "effect";
import { execFile, spawn } from "node:child_process";
import * as fs from "node:fs/promises";
import { createServer, type AddressInfo } from "node:net";
import { join } from "node:path";
import { promisify } from "node:util";
import { EmbeddedFailed, environment, lastLines, run } from "./Binaries.ts";
import { type Cluster, failedTo, homeOf, openCluster, pathFor, remove } from "./Cluster.ts";
import { connectionFile, urlOf } from "./ConnectionFile.ts";

/** Another attempt may succeed in a moment. */
class NotYet extends Data.TaggedError("NotYet")<{ readonly message: string }> {}

const pidFileOf = (data: string) => join(data, "postmaster.pid");

/**
 * The postmaster that runs on the data directory. The number in its file may belong to another program by now, as is
 * usual in containers, and `pg_ctl status` would not notice. A process of PostgreSQL works in its data directory.
 */
const findPostmaster = Effect.fnUntraced(function* (data: string) {
  const text = yield* Effect.promise(() => fs.readFile(pidFileOf(data), "utf8").catch(() => ""));
  const [pid = "", , , port, , , , status] = text.split("\n");
  if (!(Number(pid) > 1)) return null;
  const worksHere =
    process.platform === "linux"
      ? fs.readlink(`/proc/${pid}/cwd`).then((cwd) => cwd === data)
      : promisify(execFile)("ps", ["-o", "command=", "-p", pid]).then(({ stdout }) =>
          stdout.includes(data),
        );
  if (!(yield* Effect.promise(() => worksHere.catch(() => false)))) return null;
  return { pid: Number(pid), port: Number(port), isReady: status?.trim() === "ready" };
});

type Postmaster = NonNullable<Effect.Success<ReturnType<typeof findPostmaster>>>;

/** The address of the PostgreSQL that runs on the directory, whether its server still runs or not. */
export const runningPostgres = Effect.fnUntraced(
  function* (dataDir: string) {
    const home = yield* Effect.tryPromise(() => fs.realpath(homeOf(dataDir)));
    const running = yield* findPostmaster(join(home, "data"));
    if (running === null) return Option.none<Redacted.Redacted>();
    const password = yield* Effect.tryPromise(() => fs.readFile(join(home, "password"), "utf8"));
    return Option.some(urlOf(running.port, password));
  },
  Effect.orElseSucceed(() => Option.none<Redacted.Redacted>()),
);

/** Takes the lock on a connection that ends with the scope. Fails with `EmbeddedFailed` if a server holds it. */
const takeLock = Effect.fnUntraced(function* ({ dataDir, password }: Cluster, port: number) {
  const url = urlOf(port, password, "postgres");
  const connection = yield* PgConnection.make({ url, applicationName: `process ${process.pid}` });
  const { rows } = yield* connection
    .query(
      `SELECT pg_try_advisory_lock(1) AS taken, (
         SELECT application_name FROM pg_locks JOIN pg_stat_activity USING (pid)
         WHERE locktype = 'advisory' AND granted AND pid <> pg_backend_pid() LIMIT 1
       ) AS holder`,
    )
    .pipe(
      // A start that looks for the holder has the lock for a moment.
      Effect.repeat({
        until: ({ rows }) => rows[0]!["taken"] === true,
        schedule: Schedule.spaced("100 millis"),
        times: 5,
      }),
    );
  if (rows[0]!["taken"] === true) return connection;
  const holder = rows[0]!["holder"] ?? "another process";
  return yield* new EmbeddedFailed({
    message: `${dataDir} is in use by ${holder}: stop that server, or name another PARLEY_DATA_DIR.`,
  });
});

/** Takes the lock again whenever its connection breaks, as it does when PostgreSQL ends or recovers. */
const keepLock = Effect.fnUntraced(function* (
  cluster: Cluster,
  port: number,
  first: PgConnection.PgConnection,
) {
  const hold = (connection: PgConnection.PgConnection) =>
    Effect.flatMap(connection.listen("parley"), (queue) => Effect.forever(Queue.take(queue)));
  yield* Effect.ignore(Effect.scoped(hold(first)));
  yield* Effect.flatMap(takeLock(cluster, port), hold).pipe(
    Effect.scoped,
    Effect.ignore,
    Effect.andThen(Effect.sleep("200 millis")),
    Effect.forever,
  );
});

/** Stops the PostgreSQL that runs on the directory, unless another server uses it. */
const stopOrphan = Effect.fnUntraced(
  function* (cluster: Cluster, { pid, port }: Postmaster) {
    const { binaries, data, runAs } = cluster;
    // A server whose PostgreSQL has just started or recovered takes the lock meanwhile.
    yield* Effect.sleep("1 second");
    yield* takeLock(cluster, port);
    yield* Effect.logInfo(`Stopping the PostgreSQL that a killed server left behind (${pid})`);
    yield* run(binaries.pg_ctl, ["stop", "-D", pathFor(runAs, data), "-m", "fast"], runAs, data);
  },
  Effect.scoped,
  (stopped, { data }, { pid }) =>
    Effect.catchIf(
      stopped,
      (error) => error._tag !== "EmbeddedFailed",
      (error) =>
        new NotYet({
          message: `A PostgreSQL (process ${pid}) runs on ${data}, and can be neither used nor stopped: ${describeCause(error)}`,
        }),
    ),
);

const freePort: Effect.Effect<number> = Effect.callback((resume) => {
  const server = createServer().listen(0, "127.0.0.1", () => {
    const { port } = server.address() as AddressInfo;
    server.close(() => resume(Effect.succeed(port)));
  });
});

/** Another start, a port that another program took meanwhile, and children of a killed postmaster pass. */
const passing = /lock file .* (already exists|is empty)|TCP\/IP sockets|shared memory block/;

/** Its last fatal error: on standard error, or in the newest log once its logger runs. */
const readFatalError = async (data: string, errors: string) => {
  if (/FATAL|PANIC/.test(errors)) return lastLines(errors);
  const [, file] = (await fs.readFile(join(data, "current_logfiles"), "utf8")).trim().split(" ");
  const log = await fs.readFile(join(data, file!), "utf8");
  return log.split("\n").findLast((line) => /FATAL|PANIC/.test(line)) ?? lastLines(log);
};

/** One run of PostgreSQL, as a child of this process. */
const spawnPostgres = ({ binaries, data, runAs }: Cluster, port: number) => {
  const settings = {
    port,
    listen_addresses: "127.0.0.1",
    unix_socket_directories: "",
    // One file for each day of the week.
    logging_collector: "on",
    log_directory: "log",
    log_filename: "postgres-%a.log",
    log_rotation_age: "1d",
    log_rotation_size: "0",
    log_truncate_on_rotation: "on",
    log_checkpoints: "off",
    log_timezone: "UTC",
    timezone: "UTC",
  };
  const options = Object.entries(settings).map(([name, value]) => `--${name}=${value}`);
  const child = spawn(binaries.postgres, ["-D", pathFor(runAs, data), ...options], {
    ...runAs,
    cwd: data,
    env: environment(),
    // A session of its own: Ctrl-C reaches this process alone, which drains before it stops PostgreSQL.
    detached: true,
    stdio: ["ignore", "ignore", "pipe"],
  });
  // A second signal ends this process without its finalizers.
  const kill = () => child.kill("SIGINT");
  process.once("exit", kill);
  child.once("exit", () => process.off("exit", kill));
  let errors = "";
  child.stderr.setEncoding("utf8").on("data", (text: string) => {
    errors = (errors + text).slice(-2000);
  });
  let ended: string | null = null;
  const end = new Promise<string>((resolve) => {
    child.once("error", ({ message }) => resolve(message));
    // Its output may arrive a bit later. Its logger may keep standard error open for longer.
    child.once("exit", (code, signal) => setTimeout(resolve, 50, signal ?? `exit code ${code}`));
  }).then((how) => (ended = how));

  /** Completes when it accepts connections. It may recover for long before. */
  const ready = Effect.gen(function* () {
    for (let polls = 1; ended === null; polls += 1) {
      const found = yield* findPostmaster(data);
      if (found?.pid === child.pid && found?.isReady === true) return;
      if (polls % 500 === 0) yield* Effect.logInfo(`PostgreSQL is not ready yet; see ${data}/log`);
      yield* Effect.sleep("20 millis");
    }
    const reason = yield* Effect.promise(() =>
      readFatalError(data, errors).catch(() => lastLines(errors)),
    );
    const message = `PostgreSQL did not start (${ended}): ${reason}`;
    return yield* passing.test(reason) ? new NotYet({ message }) : new EmbeddedFailed({ message });
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

/** Starts it again whenever it ends. */
const keepRunning = Effect.fnUntraced(function* (
  first: Effect.Effect<string>,
  start: Effect.Effect<Effect.Effect<string>, EmbeddedFailed | NotYet>,
) {
  let end = first;
  while (true) {
    yield* Effect.logWarning(`PostgreSQL has ended unasked (${yield* end}) and is started again`);
    end = yield* start.pipe(
      Effect.tapError(({ message }) => Effect.logError(message)),
      Effect.retry(
        Schedule.min([Schedule.exponential("200 millis"), Schedule.spaced("10 seconds")]),
      ),
      Effect.delay("100 millis"),
    );
    yield* Effect.logInfo("PostgreSQL runs again");
  }
});

/**
 * Starts PostgreSQL in the directory, which is made if need be, and keeps it running until the scope closes. Returns
 * the address of its database `parley` for the superuser `parley`.
 *
 * @param options.from a module that imports another version of PostgreSQL, as tests need
 */
export const embeddedPostgres = Effect.fnUntraced(function* (
  path: string,
  options: { readonly from?: string | undefined } = {},
): Effect.fn.Return<Redacted.Redacted, EmbeddedFailed, Scope.Scope> {
  const cluster = yield* openCluster(path, options.from ?? import.meta.url);
  const { data, dataDir, password } = cluster;
  let child: ReturnType<typeof spawnPostgres> | null = null;
  const stop = Effect.suspend(() => child?.stop ?? Effect.void);
  yield* Effect.addFinalizer(() => stop);
  const start = Effect.fnUntraced(function* (port: number) {
    const spawned = yield* Effect.try({
      try: () => (child = spawnPostgres(cluster, port)),
      catch: failedTo("PostgreSQL cannot run"),
    });
    yield* Effect.tapError(spawned.ready, ({ message }) =>
      Effect.gen(function* () {
        const found = yield* findPostmaster(data);
        // The number in it belongs to another program by now.
        if (found === null && message.includes("lock file")) yield* remove(pidFileOf(data));
      }),
    );
    return spawned.end;
  });
  const first = Effect.gen(function* () {
    const running = yield* findPostmaster(data);
    if (running !== null) yield* stopOrphan(cluster, running);
    const port = yield* freePort;
    return { port, end: yield* start(port) };
  });
  const { end, port } = yield* first.pipe(
    Effect.retry({
      while: ({ _tag }) => _tag === "NotYet",
      schedule: Schedule.spaced("200 millis"),
      times: 100,
    }),
    Effect.catchTag("NotYet", ({ message }) => new EmbeddedFailed({ message })),
  );

  yield* Effect.gen(function* () {
    const lock = yield* takeLock(cluster, port);
    // Before the lock is released.
    yield* Effect.addFinalizer(() => stop);
    const { rows } = yield* lock.query("SELECT FROM pg_database WHERE datname = 'parley'");
    if (rows.length === 0) yield* lock.query("CREATE DATABASE parley");
    yield* connectionFile(dataDir, port, password);
    yield* Effect.forkScoped(keepLock(cluster, port, lock));
  }).pipe(
    Effect.mapError((error) =>
      error._tag === "EmbeddedFailed" ? error : failedTo("PostgreSQL cannot be used")(error),
    ),
  );
  yield* Effect.forkScoped(keepRunning(end, start(port)));
  return urlOf(port, password);
});
