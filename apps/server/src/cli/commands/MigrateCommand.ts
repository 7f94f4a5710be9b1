import { inspectSqlite } from "@parley/store-sqlite";
import { Effect, Layer } from "effect";
import { loadPostgres } from "../../layers/Postgres.ts";
import { databaseFile, layerFile, makeDataDir } from "../../layers/StoreLayer.ts";
import { databaseExists, databaseOptions, requireDatabase, requireStore } from "../Database.ts";
import { makeCommand } from "../Declaration.ts";
import { switchFlag } from "../Flags.ts";
import { write } from "../Output.ts";
import { Settings } from "../../Settings.ts";

export const migrate = makeCommand("migrate", {
  description:
    "Bring the database schema up to date (this also happens every time the server starts)",
  examples: { "parley migrate --dry-run": "Print the SQL first" },
  flags: { dryRun: switchFlag("dry-run", "Print the SQL without running it") },
  run: Effect.fnUntraced(
    function* ({ dryRun }) {
      const isFile = (yield* dryRun ? requireDatabase : requireStore) === "sqlite";
      const options = yield* databaseOptions;
      const file = inspectSqlite(yield* databaseFile);
      const sql = !isFile
        ? yield* (yield* loadPostgres).pendingSql(options)
        : (yield* databaseExists)
          ? (yield* file).pendingSql
          : "new";
      if (dryRun) return yield* write(`${sql || "-- The schema is up to date."}\n`);
      if (isFile) yield* Effect.andThen(makeDataDir, Layer.build(yield* layerFile()));
      else yield* (yield* loadPostgres).migratePostgres(options);
      yield* write(`The schema ${sql === "" ? "was already" : "is now"} up to date.\n`);
    },
    Effect.scoped,
    Effect.provide(Settings.layer),
  ),
});
