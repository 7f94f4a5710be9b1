/**
 * The database that a command works on: beside a running server it is that server's.
 */
import { Administration } from "@parley/core";
import { layerPostgres, pendingSql, type PostgresOptions } from "@parley/store-pg";
import { Data, Effect, Layer, Option, type Scope } from "effect";
import { SecureRandom } from "effect/crypto";
import { layerNodeDigest } from "./NodeDigest.ts";
import type { EmbeddedFailed } from "./postgres/Binaries.ts";
import { hasDatabase } from "./postgres/Cluster.ts";
import { embeddedPostgres, runningPostgres } from "./postgres/EmbeddedPostgres.ts";
import { postgresOf } from "./PostgresOf.ts";
import { Settings } from "./Settings.ts";

/** The store has nothing that another process could work on. */
export class NoDatabase extends Data.TaggedError("NoDatabase")<{ readonly message: string }> {}

export const databaseOptions: Effect.Effect<
  PostgresOptions,
  NoDatabase | EmbeddedFailed,
  Settings | Scope.Scope
> = Effect.gen(function* () {
  const settings = yield* Settings;
  const { dataDir } = settings;
  switch (settings.store) {
    case "memory":
      return yield* new NoDatabase({
        message:
          "With PARLEY_STORE=memory the chats are in the memory of the running server alone: " +
          "choose another store to work on them.",
      });
    case "postgres":
      return { ...postgresOf(settings, null), listen: false };
    case "embedded": {
      const running = yield* runningPostgres(dataDir);
      const url = Option.isSome(running) ? running.value : yield* embeddedPostgres(dataDir);
      return { ...postgresOf(settings, url), listen: false };
    }
  }
});

/** Whether there is a database, or a command would make an embedded one. */
export const isMade = Effect.gen(function* () {
  const { dataDir, store } = yield* Settings;
  return store !== "embedded" || (yield* hasDatabase(dataDir));
});

/** In another directory than the server's a command would make a database, and find it empty. */
const mustBeMade = Effect.gen(function* () {
  if (yield* isMade) return;
  const { dataDir } = yield* Settings;
  return yield* new NoDatabase({
    message: `There is no database in PARLEY_DATA_DIR ${dataDir}: name the server's, or make one with "parley migrate".`,
  });
});

/** Servers of an older version may run on the schema as it is. */
const mustBeCurrent = Effect.fnUntraced(function* (options: PostgresOptions) {
  if ((yield* pendingSql(options)) === "") return;
  return yield* new NoDatabase({
    message: 'The schema of the database is not up to date: run "parley migrate" first.',
  });
});

const layerDatabase = mustBeMade.pipe(
  Effect.andThen(databaseOptions),
  Effect.tap(mustBeCurrent),
  Effect.map(layerPostgres),
  Layer.unwrap,
);

const layerAdministration = Administration.layer.pipe(
  Layer.provideMerge(layerDatabase),
  Layer.provide([layerNodeDigest, SecureRandom.layerWebCrypto]),
);

/** Runs a command's work over the stores of that database, which it neither makes nor migrates. */
export const onDatabase = <A, E, R>(work: Effect.Effect<A, E, R>) =>
  work.pipe(Effect.provide(layerAdministration), Effect.scoped, Effect.provide(Settings.layer));
