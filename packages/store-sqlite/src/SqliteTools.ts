/**
 * What an operator does with the file besides serving it.
 */
import { StorageUnavailable } from "@parley/core/ports";
import { Effect } from "effect";
import type { DatabaseSync } from "node:sqlite";
import { loadSqlite, pragma, versionOf } from "./SqliteFile.ts";
import { firstVersion, migrations } from "./SqliteTables.ts";

const use = <A>(file: string, readOnly: boolean, work: (db: DatabaseSync) => A) =>
  Effect.try({
    try: () => {
      if (!process.getBuiltinModule("node:fs").existsSync(file))
        throw new Error("it does not exist");
      const db = new (loadSqlite().DatabaseSync)(file, { readOnly, timeout: 5_000 });
      try {
        if (versionOf(db) === 0) throw new Error("it is empty");
        return work(db);
      } finally {
        db.close();
      }
    },
    catch: (error) =>
      new StorageUnavailable({
        cause: new Error(`Cannot use the SQLite file "${file}": ${(error as Error).message}`),
      }),
  });

/**
 * Writes a consistent copy of a store's file, also while servers use it. The copy is marked: whoever opens it first
 * moves its ids ahead, so that no id is given again. Fails if the target exists.
 */
export const backupSqlite = (file: string, target: string) =>
  use(file, true, (db) => {
    const fs = process.getBuiltinModule("node:fs");
    const part = `${target}.part`;
    if (fs.existsSync(target)) throw new Error(`the backup ${target} already exists`);
    fs.rmSync(part, { force: true });
    fs.closeSync(fs.openSync(part, "wx", 0o600));
    try {
      db.prepare("VACUUM INTO ?").run(part);
      const copy = new (loadSqlite().DatabaseSync)(part);
      copy.exec("PRAGMA synchronous = FULL; UPDATE file SET identity = 'copy'");
      copy.close();
      fs.linkSync(part, target);
    } finally {
      fs.rmSync(part, { force: true });
    }
  });

/** Rewrites a store's file, so that it contains no erased text and no free space. Meanwhile, writes wait or fail. */
export const compactSqlite = (file: string) =>
  use(file, false, (db) =>
    db.exec(
      `PRAGMA secure_delete = ON; VACUUM; UPDATE file SET rewrittenAt = ${Date.now()}; PRAGMA wal_checkpoint(TRUNCATE)`,
    ),
  );

/** Checks a store's file, and writes nothing. */
export const inspectSqlite = (file: string) =>
  use(file, true, (db) => {
    const [problem] = db.prepare("PRAGMA quick_check(1)").all() as [{ quick_check: string }];
    const version = versionOf(db);
    return {
      /** The version of SQLite, such as `3.53.0`. */
      sqlite: Object.values(db.prepare("SELECT sqlite_version()").get()!)[0] as string,
      version,
      /** The SQL of the missing migrations; empty if the tables are up to date. */
      pendingSql: migrations.slice(version - firstVersion + 1).join("\n"),
      /** What is wrong with the content of the file; `null` if nothing is. */
      damage: problem.quick_check === "ok" ? null : problem.quick_check,
      bytes: Number(pragma(db, "page_count")) * Number(pragma(db, "page_size")),
    };
  });
