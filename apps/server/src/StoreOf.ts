/**
 * Where chats are kept: this process's memory, the operator's PostgreSQL, or one of the server's own.
 */
import { layerMemory } from "@parley/store-memory";
import { layerPostgres } from "@parley/store-pg";
import { Effect, Layer } from "effect";
import { embeddedPostgres } from "./postgres/EmbeddedPostgres.ts";
import { postgresOf } from "./PostgresOf.ts";
import { Settings } from "./Settings.ts";

export const layerStore = Layer.unwrap(
  Effect.gen(function* () {
    const settings = yield* Settings;
    switch (settings.store) {
      case "memory":
        return layerMemory;
      case "postgres":
        return layerPostgres(postgresOf(settings, null));
      case "embedded":
        return layerPostgres(postgresOf(settings, yield* embeddedPostgres(settings.dataDir)));
    }
  }),
);
