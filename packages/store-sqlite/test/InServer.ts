/**
 * Lets the server keep its chats in a file instead of its memory, for tests: `node --import` of this file, with
 * `PARLEY_STORE=memory`. SQLite is no setting of the server.
 */
import { registerHooks } from "node:module";
import { layerSqlite } from "@parley/store-sqlite";

export const layerMemory = layerSqlite({ file: "chats.sqlite" });

registerHooks({
  resolve: (specifier, context, next) =>
    specifier === "@parley/store-memory"
      ? { url: import.meta.url, shortCircuit: true }
      : next(specifier, context),
});
