/**
 * One server for a directory.
 *
 * The lock is an exclusive transaction on an SQLite file: the operating system takes it away when
 * its holder ends, however it ends, so it is never stale and no process number has to be trusted.
 *
 * Hazard: POSIX drops all of a process's locks on a file when that process closes any descriptor of
 * it, so nothing but SQLite may ever open the lock file.
 */
import { Effect, type Scope } from "effect";
import { closeSync, openSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { EmbeddedFailed, failedTo } from "./EmbeddedFailed.ts";

const busy = 5;

const isBusy = (cause: unknown) => (cause as { readonly errcode?: number }).errcode === busy;

const lockFile = (dir: string) => join(dir, "lock");
const holderFile = (dir: string) => join(dir, "lock.pid");

const sqlite = Effect.promise(() => import("node:sqlite"));

/** Only a new file may be opened here: see the hazard above. */
const createPrivately = (file: string) => {
  try {
    closeSync(openSync(file, "wx", 0o600));
  } catch (cause) {
    if ((cause as NodeJS.ErrnoException).code !== "EEXIST") throw cause;
  }
};

const inUse = (dir: string) => {
  let holder = "another process";
  try {
    holder = `process ${Number(readFileSync(holderFile(dir), "utf8"))}`;
  } catch {
    // The holder has not written its number yet.
  }
  return new EmbeddedFailed({
    message: `${dir} is in use by ${holder}: stop that server, or name another PARLEY_DATA_DIR.`,
  });
};

/** Holds the directory's lock until the scope closes; fails at once if another holds it. */
export const holdLock = Effect.fnUntraced(function* (
  dir: string,
): Effect.fn.Return<void, EmbeddedFailed, Scope.Scope> {
  const { DatabaseSync } = yield* sqlite;
  yield* Effect.acquireRelease(
    Effect.try({
      try: () => {
        createPrivately(lockFile(dir));
        // Longer than isLocked of another process can hold it.
        const database = new DatabaseSync(lockFile(dir), { timeout: 500 });
        try {
          database.exec("PRAGMA journal_mode = MEMORY; BEGIN EXCLUSIVE");
          writeFileSync(holderFile(dir), `${process.pid}\n`);
        } catch (cause) {
          database.close();
          throw cause;
        }
        return database;
      },
      catch: (cause) => (isBusy(cause) ? inUse(dir) : failedTo(`${dir} cannot be locked`)(cause)),
    }),
    (database) =>
      Effect.sync(() => {
        rmSync(holderFile(dir), { force: true });
        database.close();
      }),
  );
});

/** Whether a server holds the directory's lock now. */
export const isLocked = Effect.fnUntraced(function* (dir: string) {
  const { DatabaseSync } = yield* sqlite;
  return yield* Effect.sync(() => {
    try {
      const database = new DatabaseSync(lockFile(dir), { readOnly: true, timeout: 0 });
      try {
        database.exec("SELECT 1 FROM sqlite_schema");
        return false;
      } finally {
        database.close();
      }
    } catch (cause) {
      return isBusy(cause);
    }
  });
});
