/**
 * The database that a command works on: beside a running server it is that server's.
 */
import { layerPostgres, type PostgresOptions } from "@parley/store-pg";
import { Data, Effect, Layer, Option, type Scope } from "effect";
import { runningPostgres } from "./embedded/Connection.ts";
import { EmbeddedFailed } from "./embedded/EmbeddedFailed.ts";
import { embeddedPostgres } from "./embedded/EmbeddedPostgres.ts";
import { Settings } from "./Settings.ts";

/** The store has nothing that another process could work on. */
export class NoDatabase extends Data.TaggedError("NoDatabase")<{ readonly message: string }> {}

export const databaseOptions: Effect.Effect<
  PostgresOptions,
  NoDatabase | EmbeddedFailed,
  Settings | Scope.Scope
> = Effect.gen(function* () {
  const { dataDir, databaseUrl, schema, store } = yield* Settings;
  switch (store) {
    case "memory":
      return yield* new NoDatabase({
        message:
          "With PARLEY_STORE=memory the chats are in the memory of the running server alone: " +
          "choose another store to work on them.",
      });
    case "postgres":
      return { url: databaseUrl!, schema, listen: false };
    case "embedded": {
      const running = yield* runningPostgres(dataDir);
      const url = Option.isSome(running) ? running.value : (yield* embeddedPostgres(dataDir)).url;
      return { url, schema, listen: false };
    }
  }
});

const layerDatabase = Layer.unwrap(Effect.map(databaseOptions, layerPostgres));

/** Runs a command's work over the stores of that database. */
export const onDatabase = <A, E, R>(work: Effect.Effect<A, E, R>) =>
  work.pipe(Effect.provide(layerDatabase), Effect.scoped, Effect.provide(Settings.layer));
