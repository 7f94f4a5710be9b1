/**
 * Where chats are kept: this process's memory, the operator's PostgreSQL, or one of the server's own.
 */
import { layerMemory } from "@parley/store-memory";
import { layerPostgres } from "@parley/store-pg";
import { Effect, Layer } from "effect";
import { embeddedPostgres } from "./embedded/EmbeddedPostgres.ts";
import { Settings } from "./Settings.ts";

export const layerStore = Layer.unwrap(
  Effect.gen(function* () {
    const { dataDir, databaseUrl, schema, store } = yield* Settings;
    switch (store) {
      case "memory":
        return layerMemory;
      case "postgres":
        return layerPostgres({ url: databaseUrl!, schema });
      case "embedded":
        return layerPostgres({ ...(yield* embeddedPostgres(dataDir)), schema });
    }
  }),
);
