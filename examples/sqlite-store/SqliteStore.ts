/**
 * All five ports of a store over one SQLite file, by Node's own `node:sqlite`.
 */
import {
  ChatArchive,
  ChatbotDirectory,
  ChatbotRegistry,
  ChatStore,
  type StorageUnavailable,
  TurnStore,
} from "@parley/core/ports";
import { Context, Effect, Layer } from "effect";
import { makeChatArchive } from "./SqliteChatArchive.ts";
import { makeChatbotDirectory, makeChatbotRegistry } from "./SqliteChatbotRegistry.ts";
import { makeChatStore } from "./SqliteChatStore.ts";
import { openDatabase } from "./SqliteDatabase.ts";
import { makeTurnStore } from "./SqliteTurnStore.ts";

/**
 * A store in a file, which several processes of one machine may share, or in `:memory:`. It makes the
 * file and its tables when they are missing. `node:sqlite` is synchronous: while a statement runs,
 * nothing else does.
 */
export const layerSqlite = (
  path: string,
): Layer.Layer<
  ChatStore | TurnStore | ChatArchive | ChatbotDirectory | ChatbotRegistry,
  StorageUnavailable
> =>
  Layer.effectContext(
    Effect.map(openDatabase(path), (database) =>
      Context.make(ChatStore, makeChatStore(database)).pipe(
        Context.add(TurnStore, makeTurnStore(database)),
        Context.add(ChatArchive, makeChatArchive(database)),
        Context.add(ChatbotDirectory, makeChatbotDirectory(database)),
        Context.add(ChatbotRegistry, makeChatbotRegistry(database)),
      ),
    ),
  );
