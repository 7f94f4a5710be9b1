/**
 * Access to the server's database for commands, even while the server is running.
 */
import { Administration } from "@parley/core";
import { type ChatbotId, ChatbotRegistry } from "@parley/core/ports";
import { Effect, Layer } from "effect";
import { existsSync } from "node:fs";
import { userInfo } from "node:os";
import { loadPostgres } from "../layers/Postgres.ts";
import { type AnyStore, databaseFile, layerFile, postgresOptions } from "../layers/StoreLayer.ts";
import { Settings } from "../Settings.ts";
import { stopOnHangup } from "../StopSignals.ts";
import { CommandFailed } from "./CommandErrors.ts";

const noDatabase = (message: string) =>
  new CommandFailed({
    message,
    hint: 'commands need the same settings as the server; "parley doctor" checks them.',
  });

/** Fails with the memory store, which belongs to the server's process. */
export const requireStore = Effect.gen(function* () {
  yield* stopOnHangup;
  const { store } = yield* Settings;
  if (store !== "memory") return store;
  return yield* noDatabase(
    "With PARLEY_STORE=memory, chats exist only in the running server's memory; commands need another store.",
  );
});

/** The options for a command, which leaves the ids to the server. */
export const databaseOptions = Effect.map(postgresOptions, (options) => ({
  ...options,
  advanceSequences: false,
}));

/** Whether the SQLite file exists; always `true` for other stores. */
export const databaseExists = Effect.gen(function* () {
  const { store } = yield* Settings;
  return store !== "sqlite" || existsSync(yield* databaseFile);
});

/** Fails if there is no database. If the directory is not the server's, a command would create a new, empty database. */
export const requireDatabase = Effect.gen(function* () {
  const store = yield* requireStore;
  if (yield* databaseExists) return store;
  const { dataDir } = yield* Settings;
  return yield* noDatabase(
    `There is no database in PARLEY_DATA_DIR ${dataDir}: set it to the server's data directory, or create a database with "parley migrate".`,
  );
});

const openDatabase = Effect.gen(function* () {
  // Older servers may still rely on the current tables, so only a server's start and `parley migrate` change them.
  if ((yield* requireDatabase) === "sqlite")
    return (yield* layerFile({ migrates: false })) as AnyStore;
  const [{ layerPostgres, pendingSql }, options] = [yield* loadPostgres, yield* databaseOptions];
  if ((yield* pendingSql(options)) !== "") {
    return yield* noDatabase('The database schema is out of date: run "parley migrate" first.');
  }
  return layerPostgres(options);
});

const layerAdministration = Layer.provideMerge(Administration.layer, Layer.unwrap(openDatabase));

/**
 * Provides the stores and `Administration` for the configured database, whose schema must be up to date. It neither
 * creates nor migrates the database.
 */
export const onDatabase = <A, E, R>(work: Effect.Effect<A, E, R>) =>
  work.pipe(Effect.provide(layerAdministration), Effect.scoped, Effect.provide(Settings.layer));

/**
 * The actor that the audit log records for a command: the operating system's user name, as in `cli:ann`, or the user id
 * if the system knows no name. If several people share an account, PARLEY_ACTOR names the person who runs the command,
 * as in `cli:deploy (ann)`.
 */
export const actor = Effect.map(Settings, ({ actor }) => {
  const person = actor === null ? "" : ` (${actor})`;
  try {
    return `cli:${userInfo().username}${person}`;
  } catch {
    return `cli:${process.getuid?.() ?? "unknown"}${person}`;
  }
});

/** Records in the audit log that a command is about to show users' texts or a visitor token, or has posted an entry. */
export const record = Effect.fnUntraced(function* (
  chatbot: ChatbotId,
  action: "post" | "read",
  detail: string,
) {
  const registry = yield* ChatbotRegistry;
  yield* registry.record(chatbot, action, detail, yield* actor);
});
export const recordRead = (chatbot: ChatbotId, detail: string) => record(chatbot, "read", detail);
