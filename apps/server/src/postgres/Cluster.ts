/**
 * What the embedded PostgreSQL keeps in PARLEY_DATA_DIR: the folder `postgres`, which contains the database in `data`
 * and the superuser's password in `password`; and, while PostgreSQL runs, the file `connection.json`.
 *
 * Hazard: a server that runs as root must not write below `data`, whose owner could have put a link to any file there.
 */
import { Effect, Redacted } from "effect";
import { randomBytes } from "node:crypto";
import { existsSync } from "node:fs";
import * as fs from "node:fs/promises";
import { join } from "node:path";
import { attempt, EmbeddedFailed, failedWith, findBinaries, run, type RunAs } from "./Binaries.ts";

export const homeOf = (dataDir: string) => join(dataDir, "postgres");

export const hasDatabase = (dataDir: string) => Effect.sync(() => existsSync(homeOf(dataDir)));

export const remove = (path: string) =>
  Effect.promise(() => fs.rm(path, { recursive: true, force: true }).catch(() => {}));

/**
 * Returns the data directory as an argument for PostgreSQL's programs, which run in it. A process enters its working
 * directory as root before it changes user, so the new user needs no access to the parent directories.
 */
export const pathFor = (runAs: RunAs, data: string) =>
  runAs !== null && process.platform === "linux" ? "/proc/self/cwd" : data;

/** The owner of a new data directory if this process runs as root. */
const nobody = { uid: 65534, gid: 65534 };

/** Creates a cluster with the superuser `parley`, or leaves nothing behind. */
const createCluster = Effect.fnUntraced(function* (dataDir: string, initdb: string, runAs: RunAs) {
  const home = homeOf(dataDir);
  const newHome = `${home}.new-${randomBytes(6).toString("hex")}`;
  const data = join(newHome, "data");
  const path = pathFor(runAs, data);
  yield* Effect.tryPromise(async () => {
    await fs.mkdir(data, { mode: 0o700, recursive: true });
    const password = randomBytes(24).toString("base64url");
    await fs.writeFile(join(newHome, "password"), password, { mode: 0o600 });
    if (runAs === null) return;
    // Whatever the umask, the other user must be able to reach its files in this directory.
    await fs.chmod(newHome, 0o711);
    for (const name of ["data", "password"]) {
      await fs.chown(join(newHome, name), runAs.uid, runAs.gid);
    }
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
          // `lc_ctype` decides what counts as a letter, and so what the search index contains. macOS lacks C.UTF-8.
          `--lc-ctype=${process.platform === "darwin" ? "en_US.UTF-8" : "C.UTF-8"}`,
        ],
        runAs,
        data,
      ),
    ),
    Effect.andThen(Effect.tryPromise(() => fs.rename(newHome, home))),
    Effect.onError(() => remove(newHome)),
    // Another server has created the cluster in the meantime.
    Effect.catchIf(
      () => existsSync(home),
      () => Effect.void,
    ),
    Effect.mapError(failedWith(`Cannot create a database in ${home}`)),
  );
});

/**
 * Restricts the directory to its owner. PostgreSQL does not start on a directory that its group can write to or that
 * others can access, and the `fsGroup` of Kubernetes sets such permissions.
 */
const restrict = (data: string, runAs: RunAs) =>
  run("chmod", ["00700", "."], runAs, data).pipe(
    Effect.mapError(
      ({ message }) =>
        new EmbeddedFailed({
          message: `The permissions on ${data} are too open for PostgreSQL, and cannot be changed (${message}): run chmod 0700 ${data} as the directory's owner.`,
        }),
    ),
    Effect.andThen(
      Effect.logInfo(`Set the permissions on ${data} to 0700: they were too open for PostgreSQL`),
    ),
  );

/**
 * Finds the cluster in the directory, creating the directory and the cluster if necessary. If the server runs as root,
 * PostgreSQL runs as another user, because it refuses to run as root.
 */
export const openCluster = Effect.fnUntraced(function* (path: string, from: string) {
  const dataDir = yield* attempt(`Cannot use PARLEY_DATA_DIR ${path}`, async () => {
    await fs.mkdir(path, { mode: 0o700, recursive: true });
    return fs.realpath(path);
  });
  const home = homeOf(dataDir);
  const data = join(home, "data");
  const isNew = !existsSync(home);
  const unreadable = `Cannot read the database in ${home}`;
  const owner = isNew ? null : yield* attempt(unreadable, () => fs.stat(data));
  const { gid, uid } = owner ?? nobody;
  const runAs = process.getuid?.() === 0 ? { uid, gid } : null;
  const binaries = yield* findBinaries(runAs, from);
  if (isNew) yield* createCluster(dataDir, binaries.initdb, runAs);
  if (owner !== null && (owner.mode & 0o027) !== 0) yield* restrict(data, runAs);
  const password = yield* attempt(unreadable, () => fs.readFile(join(home, "password"), "utf8"));
  return { dataDir, data, binaries, runAs, password };
});

export type Cluster = Effect.Success<ReturnType<typeof openCluster>>;

const [user, host] = ["parley", "127.0.0.1"];

export const urlOf = (port: number, password: string, database = "parley") =>
  Redacted.make(`postgres://${user}:${password}@${host}:${port}/${database}?sslmode=disable`);

/**
 * Writes a file with the address and password of the database, for tools on this machine, and removes it when the scope
 * closes. Only the file's owner can read it.
 */
export const connectionFile = ({ dataDir, password }: Cluster, port: number) => {
  const file = join(dataDir, "connection.json");
  const connection = { host, port, database: "parley", user, password };
  return Effect.acquireRelease(
    attempt(`Cannot write ${file}`, async () => {
      await fs.rm(file, { force: true });
      await fs.writeFile(file, `${JSON.stringify(connection, null, 2)}\n`, { mode: 0o600 });
    }),
    () => remove(file),
  );
};
