/**
 * A store in one SQLite file, with Node's built-in `node:sqlite`.
 */
import {
  optionsOf,
  storeOf,
  textOf,
  type StorageUnavailable,
  type Store,
  type StorePorts,
} from "@parley/core/ports";
import { Effect, Layer } from "effect";
import { openDatabase } from "./SqliteFile.ts";
import { makeRows } from "./SqliteRows.ts";

/** Options for {@link layerSqlite}. */
export interface SqliteOptions {
  /** The path to the file, which is created if it does not exist. Its folder must exist. */
  readonly file: string;
}

/**
 * A store in a file, which several processes on one machine may share. It needs Node 22.13 or later. If the file cannot
 * be used, building the layer fails with `StorageUnavailable`, whose message says why. `node:sqlite` is synchronous:
 * while a statement runs, nothing else in this process runs.
 */
export const layerSqlite = (
  options: SqliteOptions,
): Layer.Layer<StorePorts, StorageUnavailable> => {
  const { file } = optionsOf("layerSqlite", options, { file: true });
  // Given an empty name, SQLite would create a temporary file and delete it on closing.
  const path = textOf("layerSqlite", file, "the path of a file");
  return Layer.effectContext(
    Effect.map(openDatabase(path), (database) => storeOf(makeRows(database))),
  );
};

/** Creates a store in a file for `openParley`, as {@link layerSqlite} does. */
export const sqlite = (file: string): Store =>
  layerSqlite({ file: textOf("sqlite", file, "the path of a file") });
