/**
 * The configured store: this process's memory, the operator's PostgreSQL, or the server's own PostgreSQL.
 */
import { layerMemory } from "@parley/store-memory";
import { layerPostgres, type PostgresOptions } from "@parley/store-pg";
import { Effect, Layer, type Redacted } from "effect";
import { embeddedPostgres } from "../postgres/EmbeddedPostgres.ts";
import { Settings } from "../Settings.ts";

/**
 * Returns the options for connecting to the configured PostgreSQL, or `null` if chats are kept in memory.
 *
 * @param embedded starts or finds the embedded PostgreSQL in a directory
 */
export const postgresOptions = Effect.fnUntraced(function* <E, R>(
  embedded: (dataDir: string) => Effect.Effect<Redacted.Redacted, E, R>,
): Effect.fn.Return<PostgresOptions | null, E, R | Settings> {
  const settings = yield* Settings;
  const { authorities, connections: maxConnections, schema, store } = settings;
  if (store === "memory") return null;
  const url = store === "embedded" ? yield* embedded(settings.dataDir) : settings.databaseUrl!;
  return { url, authorities, maxConnections, schema };
});

export const layerStore = postgresOptions(embeddedPostgres).pipe(
  Effect.map((options) => (options === null ? layerMemory : layerPostgres(options))),
  Layer.unwrap,
);
