/**
 * What an operator does with the SQLite file: copies it, rewrites it, and moves to PostgreSQL.
 */
import { ChatArchive, ChatbotRegistry } from "@parley/core/ports";
import { backupSqlite, compactSqlite } from "@parley/store-sqlite";
import { Context, Effect, Layer } from "effect";
import { Argument } from "effect/cli";
import { existsSync } from "node:fs";
import { resolve } from "node:path";
import { databaseFile, layerFile } from "../../layers/StoreLayer.ts";
import { Settings } from "../../Settings.ts";
import { CommandFailed } from "../CommandErrors.ts";
import { actor, onDatabase, requireDatabase } from "../Database.ts";
import { makeCommand } from "../Declaration.ts";
import { pluralize, print } from "../Output.ts";

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
  run: Effect.fnUntraced(function* () {
    const file = yield* requireFile;
    yield* Effect.logWarning(
      `Rewriting ${file}: until this ends, a running server's writes wait, and fail after 5 seconds`,
    );
    yield* compactSqlite(file);
    yield* print({ file }, `Rewrote ${file}.`);
  }, Effect.provide(Settings.layer)),
});

export const copy = makeCommand("copy", {
  description: "Copy all chatbots, keys and chats from a SQLite file into an empty database",
  examples: {
    "parley copy .parley/parley.db": "Move to the PostgreSQL that DATABASE_URL names",
  },
  flags: {
    file: Argument.String("file").pipe(
      Argument.withDescription("Path of the SQLite file, whose server must have stopped"),
    ),
  },
  run: Effect.fnUntraced(
    function* ({ file }) {
      const registry = yield* ChatbotRegistry;
      const archive = yield* ChatArchive;
      const by = yield* actor;
      if ((yield* registry.list).length > 0)
        return yield* new CommandFailed({
          message: "The database already has chatbots, and was not changed.",
          hint: 'copy into a new database, which "parley migrate" has created; also after a copy that was interrupted.',
        });
      const source = yield* Layer.build(yield* layerFile({ file: resolve(file), migrates: false }));
      const from = Context.get(source, ChatArchive);
      const chatbots = yield* Context.get(source, ChatbotRegistry).list;
      const counts = { chatbots: chatbots.length, keys: 0, chats: 0 };
      for (const { chatbot, keys } of chatbots) {
        const { id } = yield* registry.create({ ...chatbot, keys }, by);
        for (const key of keys)
          if (key.revokedAt !== null) yield* registry.revokeKey(id, key.id, by);
        counts.keys += keys.length;
        counts.chats += yield* archive.import(id, from.export(chatbot.id, by), by);
      }
      const sizes = [
        pluralize(counts.chatbots, "chatbot"),
        pluralize(counts.keys, "key"),
        pluralize(counts.chats, "chat"),
      ];
      yield* print(counts, `Copied ${sizes.join(", ")}.`);
    },
    Effect.scoped,
    onDatabase,
  ),
});
