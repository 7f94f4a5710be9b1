/**
 * The directory of the embedded database: `postgres` in PARLEY_DATA_DIR, with the cluster in `data`, and the password of
 * its superuser beside it.
 *
 * Hazard: a server that is root must not write below `data`, whose owner could have put a link to any file there.
 */
import { describeCause } from "@parley/core";
import { Effect } from "effect";
import { randomBytes } from "node:crypto";
import { existsSync } from "node:fs";
import * as fs from "node:fs/promises";
import { join, resolve } from "node:path";
import { binariesFor, EmbeddedFailed, run, type RunAs } from "./Binaries.ts";

/** An initialized database. */
export interface Cluster {
  readonly dataDir: string;
  readonly data: string;
  readonly binaries: Effect.Success<ReturnType<typeof binariesFor>>;
  readonly runAs: RunAs;
  readonly password: string;
}

export const failedTo = (what: string) => (cause: unknown) =>
  new EmbeddedFailed({ message: `${what}: ${describeCause(cause)}` });

export const homeOf = (dataDir: string) => join(dataDir, "postgres");

/** Whether a start has made a database in the directory. */
export const hasDatabase = (dataDir: string) => Effect.sync(() => existsSync(homeOf(dataDir)));

export const remove = (path: string) =>
  Effect.promise(() => fs.rm(path, { recursive: true, force: true }).catch(() => {}));

/**
 * The data directory as an argument of PostgreSQL's programs, which run in it. A process enters its working directory
 * as root, before it becomes another user, so the directories above may be closed to that user.
 */
export const pathFor = (runAs: RunAs, data: string) =>
  runAs !== null && process.platform === "linux" ? "/proc/self/cwd" : data;

/** The owner of the data, or for new data this user, or another if this is root: PostgreSQL does not run as root. */
const userFor = Effect.fnUntraced(function* (data: string, isNew: boolean) {
  const self = process.getuid?.();
  if (!isNew) {
    const { gid, uid } = yield* Effect.tryPromise(() => fs.stat(data)).pipe(
      Effect.mapError(failedTo(`The database in ${data} cannot be read`)),
    );
    if (uid === self && uid !== 0) return null;
    if (self === 0 && uid !== 0) return { uid, gid };
    return yield* new EmbeddedFailed({
      message:
        uid === 0
          ? `The database in ${data} belongs to root, and PostgreSQL does not run as root: copy the directory with its owners (cp -a).`
          : `The database in ${data} belongs to the user with id ${uid}: start the server as that user, or name another PARLEY_DATA_DIR.`,
    });
  }
  if (self !== 0) return null;
  const users = yield* Effect.promise(() => fs.readFile("/etc/passwd", "utf8").catch(() => ""));
  for (const name of ["postgres", "nobody"]) {
    const [, uid, gid] = new RegExp(`^${name}:[^:]*:(\\d+):(\\d+):`, "m").exec(users) ?? [];
    if (Number(uid) > 0) return { uid: Number(uid), gid: Number(gid) };
  }
  return yield* new EmbeddedFailed({
    message:
      "PostgreSQL does not run as root, and this system has no user named postgres or nobody: " +
      "start the server as an ordinary user, or set DATABASE_URL.",
  });
});

/** Makes a cluster with the superuser `parley`, all or nothing. */
const createCluster = Effect.fnUntraced(function* (dataDir: string, initdb: string, runAs: RunAs) {
  const fresh = join(dataDir, `postgres.new-${randomBytes(6).toString("hex")}`);
  const data = join(fresh, "data");
  const passwordFile = join(fresh, "password");
  const path = pathFor(runAs, data);
  yield* Effect.tryPromise(async () => {
    await fs.mkdir(data, { mode: 0o700, recursive: true });
    await fs.writeFile(passwordFile, randomBytes(24).toString("base64url"), { mode: 0o600 });
    if (runAs === null) return;
    // The owner of both passes through to the password, whatever the umask is.
    await fs.chmod(fresh, 0o711);
    for (const path of [data, passwordFile]) await fs.chown(path, runAs.uid, runAs.gid);
  }).pipe(
    Effect.andThen(
      run(
        initdb,
        [
          `--pgdata=${path}`,
          `--pwfile=${path}/../password`,
          "--username=parley",
          "--auth-local=reject",
          "--auth-host=scram-sha-256",
          "--encoding=UTF8",
          "--locale=C",
          // It decides what counts as a letter, and so what the index for searches contains. macOS lacks C.UTF-8.
          `--lc-ctype=${process.platform === "darwin" ? "en_US.UTF-8" : "C.UTF-8"}`,
        ],
        runAs,
        data,
      ),
    ),
    Effect.andThen(Effect.tryPromise(() => fs.rename(fresh, homeOf(dataDir)))),
    Effect.onError(() => remove(fresh)),
    // Another server was faster.
    Effect.catchIf(
      () => existsSync(homeOf(dataDir)),
      () => Effect.void,
    ),
    Effect.mapError(failedTo(`A new database cannot be made in ${homeOf(dataDir)}`)),
  );
  // Also of starts that were killed.
  for (const name of yield* Effect.promise(() => fs.readdir(dataDir))) {
    if (name.startsWith("postgres.new-")) yield* remove(join(dataDir, name));
  }
});

/** Finds the cluster in the directory, or makes both. */
export const openCluster = Effect.fnUntraced(function* (path: string, from: string) {
  // Node's own recursion never ends below /proc.
  const dataDir = yield* run("mkdir", ["-p", "-m", "700", resolve(path)], null).pipe(
    Effect.andThen(Effect.tryPromise(() => fs.access(path, fs.constants.W_OK | fs.constants.X_OK))),
    Effect.andThen(Effect.tryPromise(() => fs.realpath(path))),
    Effect.mapError(
      failedTo(
        `PARLEY_DATA_DIR ${path} cannot be written; name another directory, or set DATABASE_URL`,
      ),
    ),
  );
  const home = homeOf(dataDir);
  const data = join(home, "data");
  if (existsSync(join(home, "pg_hba.conf"))) {
    return yield* new EmbeddedFailed({
      message: `The database in ${home} is of an earlier version: export its chats with that version ("parley chats export"), and import them with this one into a new PARLEY_DATA_DIR.`,
    });
  }
  const isNew = !existsSync(home);
  const runAs = yield* userFor(data, isNew);
  const binaries = yield* binariesFor(runAs, from);
  if (isNew) yield* createCluster(dataDir, binaries.initdb, runAs);
  const read = (file: string) =>
    Effect.tryPromise(() => fs.readFile(join(home, file), "utf8")).pipe(
      Effect.mapError(failedTo(`The database in ${home} cannot be read`)),
    );
  const version = (yield* read("data/PG_VERSION")).trim();
  if (version !== binaries.major) {
    return yield* new EmbeddedFailed({
      message: `The database in ${home} is of PostgreSQL ${version}, but this is PostgreSQL ${binaries.major}: dump it with the former, and restore it into a new PARLEY_DATA_DIR.`,
    });
  }
  const password = yield* read("password");
  return { dataDir, data, binaries, runAs, password } satisfies Cluster;
});
