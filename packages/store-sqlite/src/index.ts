/**
 * Implements all five ports of a store on one SQLite file, with Node's built-in `node:sqlite`.
 */
import {
  ChatArchive,
  ChatbotDirectory,
  ChatbotRegistry,
  ChatStore,
  type StorageUnavailable,
  type Store,
  type StorePorts,
  TurnStore,
} from "@parley/core/ports";
import { Context, Effect, Layer } from "effect";
import { makeChatArchive } from "./SqliteChatArchive.ts";
import { makeChatbotDirectory, makeChatbotRegistry } from "./SqliteChatbotRegistry.ts";
import { makeChatStore } from "./SqliteChatStore.ts";
import { openDatabase } from "./SqliteDatabase.ts";
import { makeTurnStore } from "./SqliteTurnStore.ts";

/** Options for {@link layerSqlite}. */
export interface SqliteOptions {
  /** The path to the file, which is created if it does not exist. Its folder must exist. */
  readonly file: string;
}

/**
 * A store in a file, which several processes on one machine may share. It needs Node 22.13 or later. If the file cannot
 * be used, building the layer fails with `StorageUnavailable`, whose message says why. `node:sqlite` is synchronous:
 * while a statement runs, or waits up to five seconds for another process, nothing else in this process runs.
 */
export const layerSqlite = ({ file }: SqliteOptions): Layer.Layer<StorePorts, StorageUnavailable> =>
  Layer.effectContext(
    Effect.map(openDatabase(file), (database) =>
      Context.make(ChatStore, makeChatStore(database)).pipe(
        Context.add(TurnStore, makeTurnStore(database)),
        Context.add(ChatArchive, makeChatArchive(database)),
        Context.add(ChatbotDirectory, makeChatbotDirectory(database)),
        Context.add(ChatbotRegistry, makeChatbotRegistry(database)),
      ),
    ),
  );

/** Creates a store in a file for `openParley`, as {@link layerSqlite} does. */
export const sqlite = (file: string): Store => layerSqlite({ file });
