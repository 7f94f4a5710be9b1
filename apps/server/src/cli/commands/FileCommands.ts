/**
 * What an operator does with the SQLite file: copies it and rewrites it.
 */
import { backupSqlite, compactSqlite } from "@parley/store-sqlite";
import { Effect } from "effect";
import { Argument } from "effect/cli";
import { existsSync } from "node:fs";
import { resolve } from "node:path";
import { databaseFile } from "../../layers/StoreLayer.ts";
import { Settings } from "../../Settings.ts";
import { CommandFailed } from "../CommandErrors.ts";
import { requireDatabase } from "../Database.ts";
import { makeCommand } from "../Declaration.ts";
import { print } from "../Output.ts";

/** The path of the file; fails if chats are in PostgreSQL. */
const requireFile = Effect.gen(function* () {
  if ((yield* requireDatabase) === "sqlite") return yield* databaseFile;
  return yield* new CommandFailed({
    message: "This command is for a SQLite file, but the chats are in PostgreSQL.",
    hint: 'use the tools of PostgreSQL: see "Back up and restore" in docs/operations.md.',
  });
});

export const backup = makeCommand("backup", {
  description: "Write a consistent copy of the SQLite file, also while the server is running",
  examples: {
    "parley backup /backups/parley-monday.db": "Write a new file; an existing one stays",
  },
  flags: { target: Argument.String("file").pipe(Argument.withDescription("Path of the new file")) },
  run: Effect.fnUntraced(function* ({ target }) {
    const path = resolve(target);
    if (existsSync(path))
      return yield* new CommandFailed({
        message: `${path} already exists, and was not changed.`,
        hint: "name another file.",
      });
    yield* backupSqlite(yield* requireFile, path);
    yield* print(
      { file: path },
      `Wrote ${path}. To restore it, stop the server, and copy it to PARLEY_DATA_DIR as parley.db.`,
    );
  }, Effect.provide(Settings.layer)),
});

export const compact = makeCommand("compact", {
  description: "Rewrite the SQLite file without the remains of erased texts and without free space",
  examples: {
    "parley compact": "Writes of a running server wait meanwhile, or fail after 5 seconds",
  },
  flags: {},
  run: Effect.fnUntraced(function* () {
    const file = yield* requireFile;
    yield* Effect.logWarning(
      `Rewriting ${file}: until this ends, a running server's writes wait, and fail after 5 seconds`,
    );
    yield* compactSqlite(file);
    yield* print({ file }, `Rewrote ${file}.`);
  }, Effect.provide(Settings.layer)),
});
