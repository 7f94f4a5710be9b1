/**
 * The content of PARLEY_DATA_DIR: `postgres`, with the database in `data` and the password of its superuser beside it,
 * and while a server runs `connection.json`.
 *
 * Hazard: a server that is root must not write below `data`, whose owner could have put a link to any file there.
 */
import { describeCause } from "@parley/core";
import { Effect, Redacted } from "effect";
import { randomBytes } from "node:crypto";
import { existsSync } from "node:fs";
import * as fs from "node:fs/promises";
import { join, resolve } from "node:path";
import { binariesFor, EmbeddedFailed, run, type RunAs } from "./Binaries.ts";

export const failedTo = (what: string) => (cause: unknown) =>
  new EmbeddedFailed({ message: `${what}: ${describeCause(cause)}` });

const attempt = <A>(what: string, work: () => Promise<A>) =>
  Effect.tryPromise({ try: work, catch: failedTo(what) });

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
    const { gid, uid } = yield* attempt(`The database in ${data} cannot be read`, () =>
      fs.stat(data),
    );
    if (self === 0 && uid !== 0) return { uid, gid };
    if (self === uid && uid !== 0) return null;
    return yield* new EmbeddedFailed({
      message:
        `The database in ${data} belongs to the user with id ${uid}, as which PostgreSQL cannot run here: ` +
        "copy a directory with its owners (cp -a), and start the server as the owner of the database.",
    });
  }
  if (self !== 0) return null;
  const users = yield* Effect.promise(() => fs.readFile("/etc/passwd", "utf8").catch(() => ""));
  const idsOf = (name: string) =>
    new RegExp(`^${name}:[^:]*:(\\d+):(\\d+):`, "m").exec(users)?.slice(1).map(Number);
  const [uid = 65534, gid = 65534] = idsOf("postgres") ?? idsOf("nobody") ?? [];
  return { uid, gid };
});

/** Makes a cluster with the superuser `parley`, all or nothing. */
const createCluster = Effect.fnUntraced(function* (dataDir: string, initdb: string, runAs: RunAs) {
  const home = homeOf(dataDir);
  const fresh = `${home}.new-${randomBytes(6).toString("hex")}`;
  const data = join(fresh, "data");
  const path = pathFor(runAs, data);
  yield* Effect.tryPromise(async () => {
    await fs.mkdir(data, { mode: 0o700, recursive: true });
    const password = randomBytes(24).toString("base64url");
    await fs.writeFile(join(fresh, "password"), password, { mode: 0o600 });
    if (runAs === null) return;
    // The owner of both passes through to the password, whatever the umask is.
    await fs.chmod(fresh, 0o711);
    for (const name of ["data", "password"]) {
      await fs.chown(join(fresh, name), runAs.uid, runAs.gid);
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
          // It decides what counts as a letter, and so what the index for searches contains. macOS lacks C.UTF-8.
          `--lc-ctype=${process.platform === "darwin" ? "en_US.UTF-8" : "C.UTF-8"}`,
        ],
        runAs,
        data,
      ),
    ),
    Effect.andThen(Effect.tryPromise(() => fs.rename(fresh, home))),
    Effect.onError(() => remove(fresh)),
    // Another server was faster.
    Effect.catchIf(
      () => existsSync(home),
      () => Effect.void,
    ),
    Effect.mapError(failedTo(`A new database cannot be made in ${home}`)),
  );
  // Also of starts that were killed.
  for (const name of yield* Effect.promise(() => fs.readdir(dataDir))) {
    if (name.startsWith("postgres.new-")) yield* remove(join(dataDir, name));
  }
});

/** Finds the cluster in the directory, or makes both. */
export const openCluster = Effect.fnUntraced(function* (path: string, from: string) {
  const unwritable = `PARLEY_DATA_DIR ${path} cannot be written; name another directory, or set DATABASE_URL`;
  // Node's own recursion never ends below /proc.
  yield* Effect.mapError(
    run("mkdir", ["-p", "-m", "700", resolve(path)], null),
    failedTo(unwritable),
  );
  const dataDir = yield* attempt(unwritable, async () => {
    await fs.access(path, fs.constants.W_OK | fs.constants.X_OK);
    return fs.realpath(path);
  });
  const home = homeOf(dataDir);
  const data = join(home, "data");
  const isNew = !existsSync(home);
  const runAs = yield* userFor(data, isNew);
  const binaries = yield* binariesFor(runAs, from);
  if (isNew) yield* createCluster(dataDir, binaries.initdb, runAs);
  const password = yield* attempt(`The database in ${home} cannot be read`, () =>
    fs.readFile(join(home, "password"), "utf8"),
  );
  return { dataDir, data, binaries, runAs, password };
});

export type Cluster = Effect.Success<ReturnType<typeof openCluster>>;

const [user, host] = ["parley", "127.0.0.1"];

export const urlOf = (port: number, password: string, database = "parley") =>
  Redacted.make(`postgres://${user}:${password}@${host}:${port}/${database}`);

/**
 * Writes the address of the database for tools on this machine. The file is readable by its owner alone, never half
 * written, and removed when the scope closes.
 */
export const connectionFile = ({ dataDir, password }: Cluster, port: number) => {
  const file = join(dataDir, "connection.json");
  const connection = { host, port, database: "parley", user, password };
  return Effect.acquireRelease(
    attempt(`${file} cannot be written`, async () => {
      const text = `${JSON.stringify(connection, null, 2)}\n`;
      await fs.rm(`${file}.new`, { force: true });
      await fs.writeFile(`${file}.new`, text, { mode: 0o600 });
      await fs.rename(`${file}.new`, file);
    }),
    () => remove(file),
  );
};
