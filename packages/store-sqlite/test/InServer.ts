/**
 * Makes the server keep its chats in a SQLite file, for tests: load this file with `node --import`, and set
 * `PARLEY_STORE=memory`. No server setting selects SQLite.
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
