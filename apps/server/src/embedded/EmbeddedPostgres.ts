/**
 * A PostgreSQL of the server's own, in PARLEY_DATA_DIR.
 *
 * It is reachable from this machine only, runs for as long as the scope is open, and is started
 * again if it ends before that.
 */
import { Clock, Duration, Effect, Schedule, type Scope } from "effect";
import { access, chmod, constants, realpath } from "node:fs/promises";
import { dirname } from "node:path";
import { binariesFor } from "./Binaries.ts";
import { checkVersion, createCluster, readPassword } from "./Cluster.ts";
import {
  forgetConnection,
  urlsOf,
  writeConnection,
  type Connection,
  type UrlOf,
} from "./Connection.ts";
import { EmbeddedFailed, failedTo } from "./EmbeddedFailed.ts";
import { freePort } from "./FreePort.ts";
import { canReach, dataOf, findHome } from "./Home.ts";
import { holdLock } from "./Lock.ts";
import { keepLogSmall, logFile } from "./LogFile.ts";
import { stopOrphans } from "./Orphans.ts";
import { isRoot, newOwner, ownerOf } from "./OsUser.ts";
import { makeDirectory } from "./MakeDirectory.ts";
import { type Postmaster, startPostmaster, type Where } from "./Postmaster.ts";
import { makeMissingRoles, ownerRole, type RoleOptions } from "./Roles.ts";

/** As root others may pass through, because PostgreSQL, which is not root, must. */
const openDataDir = (dataDir: string) =>
  Effect.tryPromise({
    try: async () => {
      if (await makeDirectory(dataDir)) await chmod(dataDir, isRoot() ? 0o711 : 0o700);
      await access(dataDir, constants.W_OK | constants.X_OK);
      return await realpath(dataDir);
    },
    catch: (cause) =>
      new EmbeddedFailed({
        message: `PARLEY_DATA_DIR ${dataDir} cannot be written (${(cause as NodeJS.ErrnoException).code}): name another directory, or set DATABASE_URL.`,
      }),
  });

export interface EmbeddedOptions extends RoleOptions {
  /** A module that finds another version of PostgreSQL than this one, as tests need. */
  readonly from?: string | undefined;
}

/** Finds the cluster, or makes it, and all that is needed to run it. */
const prepare = Effect.fnUntraced(function* (dataDir: string, options: EmbeddedOptions) {
  const found = yield* findHome(dataDir);
  const runAs = found === null ? yield* newOwner : yield* ownerOf(dataOf(found));
  const binaries = yield* binariesFor(runAs, options.from);
  const home = found ?? (yield* createCluster(dataDir, binaries, runAs, options));
  if (!(yield* canReach(dataOf(home), runAs))) {
    return yield* new EmbeddedFailed({
      message: `${home} cannot be reached by its owner: let others pass through (chmod o+x) every directory above it.`,
    });
  }
  // A copy of the directory links to the same database.
  if (dirname(home) !== dataDir) yield* holdLock(home);
  yield* checkVersion(home, binaries);
  return { dataDir, home, binaries, runAs } satisfies Where;
});

/** Another program may take the port first, and children of a killed postmaster end a bit later. */
const passing = /Address already in use|pre-existing shared memory/;

/**
 * Starts PostgreSQL in `dataDir`, which is made if need be, and keeps it running until the scope
 * closes. Gives the urls by which its roles connect; none of them is a superuser.
 */
export const embeddedPostgres = Effect.fnUntraced(function* (
  dataDir: string,
  options: EmbeddedOptions = {},
): Effect.fn.Return<UrlOf, EmbeddedFailed, Scope.Scope> {
  const dir = yield* openDataDir(dataDir);
  yield* holdLock(dir);
  yield* forgetConnection(dir);
  const where = yield* prepare(dir, options);
  const password = yield* readPassword(where.home);
  yield* makeMissingRoles(where, password, options);
  const log = logFile(dir);
  yield* Effect.forkScoped(keepLogSmall(log));

  let postmaster: Postmaster | null = null;
  yield* Effect.addFinalizer(() => Effect.suspend(() => postmaster?.stop ?? Effect.void));
  const start = Effect.fnUntraced(function* (port: number) {
    yield* stopOrphans(dataOf(where.home));
    // In one step, so that the finalizer misses none.
    const started = yield* Effect.tap(startPostmaster(where, port), (started) =>
      Effect.sync(() => {
        postmaster = started;
      }),
    ).pipe(
      Effect.uninterruptible,
      Effect.catchDefect((cause) => Effect.fail(failedTo("PostgreSQL cannot run")(cause))),
    );
    yield* started.ready;
    return started;
  });

  const first = Effect.gen(function* () {
    const port = yield* freePort;
    return { port, started: yield* start(port) };
  });
  const { port, started } = yield* first.pipe(
    Effect.retry({
      times: 5,
      schedule: Schedule.spaced("200 millis"),
      while: (error) => error._tag === "NotStarted" && passing.test(error.message),
    }),
    Effect.catchTag("NotStarted", ({ message }) =>
      Effect.fail(
        new EmbeddedFailed({ message: `PostgreSQL did not start; ${log} ends with: ${message}` }),
      ),
    ),
  );

  const connection: Connection = {
    host: "127.0.0.1",
    port,
    database: "parley",
    user: ownerRole,
    password,
  };
  yield* Effect.addFinalizer(() => Effect.ignore(forgetConnection(dir)));
  yield* writeConnection(dir, connection);
  yield* Effect.forkScoped(keepRunning(started, start(port), log));
  return urlsOf(connection);
});

/** Nobody needs to act on the first failures. */
const say = (failures: number) => (failures < 5 ? Effect.logWarning : Effect.logError);

/** Starts it again whenever it ends: quickly at first, and ever more slowly if that does not help. */
const keepRunning = Effect.fnUntraced(function* <E>(
  first: Postmaster,
  start: Effect.Effect<Postmaster, E>,
  log: string,
) {
  let running: Postmaster | null = first;
  let failures = 0;
  while (true) {
    if (running !== null) {
      const began = yield* Clock.currentTimeMillis;
      const how = yield* running.ended;
      if ((yield* Clock.currentTimeMillis) - began > 60_000) failures = 0;
      yield* say(failures)(
        `PostgreSQL has ended unasked (${how}) and is started again; see ${log}`,
      );
    }
    yield* Effect.sleep(Duration.millis(Math.min(50 * 2 ** failures, 30_000)));
    failures += 1;
    running = yield* start.pipe(
      // Otherwise this loop would end, and nobody would notice.
      Effect.catchDefect(Effect.fail),
      Effect.tap(() => Effect.logInfo("PostgreSQL runs again")),
      Effect.catch((error) =>
        Effect.as(say(failures)(`PostgreSQL did not start again; see ${log}`, error), null),
      ),
    );
  }
});
