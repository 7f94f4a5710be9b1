/**
 * The configured store: a SQLite file in PARLEY_DATA_DIR, the operator's PostgreSQL, or this process's memory.
 */
import { StorageUnavailable, type StorePorts } from "@parley/core/ports";
import { layerMemory } from "@parley/store-memory";
import type { PostgresOptions, PostgresUnusable } from "@parley/store-pg";
import { layerSqlite } from "@parley/store-sqlite";
import { Effect, Layer, Redacted } from "effect";
import { existsSync, mkdirSync } from "node:fs";
import { dirname, join } from "node:path";
import { Settings } from "../Settings.ts";
import { loadPostgres } from "./Postgres.ts";
import { readVariable } from "../Variables.ts";

/** Loads `node:sqlite` without the warning that Node 22 prints about it. */
const loadQuietly = Effect.sync(() => {
  const { emitWarning } = process;
  process.emitWarning = () => {};
  try {
    process.getBuiltinModule("node:sqlite");
  } finally {
    process.emitWarning = emitWarning;
  }
});

/** The path of the SQLite file. */
export const databaseFile = Effect.map(Effect.andThen(loadQuietly, Settings), ({ dataDir }) =>
  join(dataDir, "parley.db"),
);

/** Reads DATABASE_URL again: whoever rotates passwords replaces the file that DATABASE_URL_FILE names. */
const readUrl = () =>
  Effect.runSync(
    readVariable(process.env, "DATABASE_URL").pipe(
      Effect.orElseSucceed(() => undefined),
      Effect.map((url) => (url === undefined ? url : Redacted.make(url))),
    ),
  );

/** The options for connecting to the configured PostgreSQL. */
export const postgresOptions = Effect.map(Settings, (settings): PostgresOptions => {
  const { authorities, connections: maxConnections, databaseUrl, schema } = settings;
  return { url: databaseUrl!, readUrl, authorities, maxConnections, schema };
});

/**
 * Creates a folder, and those above it, for the user of this process alone. `mkdirSync` with `recursive` never ends where
 * a folder exists and yet answers ENOENT for each new one in it, as /proc and automounted folders do.
 */
export const makeFolder = (folder: string): void => {
  if (existsSync(folder)) return;
  makeFolder(dirname(folder));
  try {
    mkdirSync(folder, { mode: 0o700 });
  } catch (error) {
    // Another process was faster.
    if ((error as NodeJS.ErrnoException).code !== "EEXIST") throw error;
  }
};

/** Creates the data directory, which only the user of this process may enter. */
export const makeDataDir = Effect.gen(function* () {
  const { dataDir } = yield* Settings;
  yield* Effect.try({
    try: () => makeFolder(dataDir),
    catch: (cause) =>
      new StorageUnavailable({
        cause: new Error(
          `PARLEY_DATA_DIR ${dataDir} cannot be created: ${(cause as Error).message}`,
        ),
      }),
  });
  const older = join(dataDir, "postgres");
  if (existsSync(older))
    yield* Effect.logWarning(
      `${older} has the PostgreSQL database of an earlier version, which this version does not open. To keep its chats, export them with the earlier version ("parley chats export") and import them with this one; then delete the folder`,
    );
});

/** The store in the file of the settings, or in another. */
export const layerFile = (options: { readonly file?: string; readonly migrates?: boolean } = {}) =>
  Effect.map(databaseFile, (file) => layerSqlite({ file, ...options }));

/** One of the stores. */
export interface AnyStore extends Layer.Layer<StorePorts, PostgresUnusable | StorageUnavailable> {}

/** The store of a server. */
export const layerStore = Layer.unwrap(
  Effect.gen(function* () {
    const { store } = yield* Settings;
    if (store === "sqlite") yield* makeDataDir;
    const layer: AnyStore =
      store === "memory"
        ? layerMemory
        : store === "postgres"
          ? (yield* loadPostgres).layerPostgres(yield* postgresOptions)
          : yield* layerFile();
    return layer;
  }),
);
