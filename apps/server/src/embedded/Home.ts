/**
 * Where the cluster is. A home is a directory with the cluster itself in `data`, and beside it who
 * may connect and the password of its role; `postgres` in PARLEY_DATA_DIR is the home, or a link to
 * it where the user that PostgreSQL runs as cannot reach PARLEY_DATA_DIR.
 *
 * Hazard: a server that is root must never write below `data`. Its owner could have put a link there
 * to any other file.
 */
import { Effect } from "effect";
import { createHash, randomBytes } from "node:crypto";
import {
  chmod,
  lstat,
  mkdir,
  open,
  readdir,
  realpath,
  rename,
  rm,
  symlink,
} from "node:fs/promises";
import { basename, dirname, join } from "node:path";
import { EmbeddedFailed, failedTo } from "./EmbeddedFailed.ts";
import type { RunAs } from "./OsUser.ts";
import { run } from "./Run.ts";
import { makeSystemDir, systemDir } from "./SystemDir.ts";

export const dataOf = (home: string) => join(home, "data");
export const accessOf = (home: string) => join(home, "pg_hba.conf");
export const passwordOf = (home: string) => join(home, "password");

const linkIn = (dataDir: string) => join(dataDir, "postgres");

/** The home that a former start made, or `null`. */
export const findHome = (dataDir: string) =>
  Effect.tryPromise({
    try: async () => {
      const link = linkIn(dataDir);
      const found = await lstat(link).catch((cause) => {
        if (cause.code === "ENOENT") return null;
        throw cause;
      });
      return found === null ? null : await realpath(link);
    },
    catch: (cause) =>
      new EmbeddedFailed({
        message: `The database that ${linkIn(dataDir)} stands for is not there (${(cause as NodeJS.ErrnoException).code}): restore it, or name another PARLEY_DATA_DIR.`,
      }),
  });

/** Whether `runAs` can get into the directory. */
export const canReach = (dir: string, runAs: RunAs) =>
  runAs === null
    ? Effect.succeed(true)
    : Effect.map(run("/bin/sh", ["-c", 'cd "$1"', "sh", dir], { runAs }), ({ code }) => code === 0);

const random = () => randomBytes(6).toString("hex");

const sync = async (dir: string) => {
  const handle = await open(dir);
  try {
    await handle.sync();
  } finally {
    await handle.close();
  }
};

/** A home that is being made: `commit` puts it in its place, all or nothing. */
export interface NewHome {
  readonly dir: string;
  readonly commit: Effect.Effect<string, EmbeddedFailed>;
}

/** An empty directory for a new home; what interrupted starts left behind is removed. */
export const newHome = Effect.fnUntraced(function* (dataDir: string, runAs: RunAs) {
  const near = yield* canReach(dataDir, runAs);
  const parent = near ? dataDir : systemDir;
  const key = near ? "postgres" : createHash("sha256").update(dataDir).digest("hex").slice(0, 16);
  const dir = join(parent, `${key}.new-${random()}`);
  yield* Effect.tryPromise({
    try: async () => {
      if (!near) await makeSystemDir();
      for (const name of await readdir(parent)) {
        if (!name.startsWith(`${key}.new-`)) continue;
        // What is still being written to goes at a later start.
        await rm(join(parent, name), { recursive: true, force: true }).catch(() => {});
      }
      await mkdir(dir, { mode: 0o700 });
      if (runAs !== null) await chmod(dir, 0o711);
    },
    catch: failedTo(
      near
        ? `PARLEY_DATA_DIR ${dataDir} cannot be written`
        : `The user that PostgreSQL runs as cannot reach ${dataDir}, and ${parent} cannot be used instead`,
    ),
  });
  if (!near) {
    yield* Effect.logInfo(
      `The database is kept in ${systemDir}, because the user that PostgreSQL runs as cannot reach ${dataDir}`,
    );
  }
  const commit = Effect.tryPromise({
    try: async () => {
      const link = linkIn(dataDir);
      if (near) {
        await rename(dir, link);
      } else {
        // Random, not the key alone: the directory at that path may be another one by now, and the
        // database of the former still in use elsewhere.
        const home = join(parent, `${key}-${random()}`);
        await rename(dir, home);
        await sync(parent);
        await symlink(home, link);
      }
      await sync(dirname(link));
      return await realpath(link);
    },
    catch: failedTo(`The new database cannot be put into ${dataDir}/${basename(linkIn(dataDir))}`),
  });
  return { dir, commit } satisfies NewHome;
});
