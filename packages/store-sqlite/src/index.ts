/**
 * A store in one SQLite file, with Node's built-in `node:sqlite`.
 */
import {
  optionsOf,
  storeOf,
  textOf,
  StoreState,
  type StorageUnavailable,
  type Store,
  type StorePorts,
} from "@parley/core/ports";
import { Context, Effect, Layer } from "effect";
import { openDatabase } from "./SqliteFile.ts";
import { makeRows } from "./SqliteRows.ts";

export { backupSqlite, compactSqlite, inspectSqlite } from "./SqliteTools.ts";

/** Options for {@link layerSqlite}. */
export interface SqliteOptions {
  /** The path to the file, which is created if it does not exist. Its folder must exist. */
  readonly file: string;
  /** With `false`, building the layer fails unless the file exists and its tables are up to date. */
  readonly migrates?: boolean;
}

/**
 * A store in a file, which several processes on one machine may share. It needs Node 22.13 or later. If the file cannot
 * be used, building the layer fails with `StorageUnavailable`, whose message says why. `node:sqlite` is synchronous:
 * while a statement runs, nothing else in this process runs. Statements that may take long run in a thread.
 */
export const layerSqlite = (
  options: SqliteOptions,
): Layer.Layer<StorePorts, StorageUnavailable> => {
  const { file, migrates } = optionsOf("layerSqlite", options, { file: true, migrates: false });
  // Given an empty name, SQLite would create a temporary file and delete it on closing.
  const path = textOf("layerSqlite", file, "the path of a file");
  return Layer.effectContext(
    Effect.gen(function* () {
      const { readOnlyReason, ...database } = yield* openDatabase(path, migrates);
      const { clear, rows } = makeRows(database);
      // A process that was killed may have left some of what it was erasing.
      yield* Effect.forkScoped(Effect.ignore(clear));
      return Context.add(storeOf(rows), StoreState, { readOnlyReason });
    }),
  );
};

/** Creates a store in a file for `openParley`, as {@link layerSqlite} does. */
export const sqlite = (file: string): Store =>
  layerSqlite({ file: textOf("sqlite", file, "the path of a file") });
