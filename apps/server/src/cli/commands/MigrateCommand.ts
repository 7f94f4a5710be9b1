import { migratePostgres, pendingSql } from "@parley/store-pg";
import { Effect } from "effect";
import { databaseOptions, requireDatabase } from "../Database.ts";
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
      if (dryRun) yield* requireDatabase;
      const options = yield* databaseOptions;
      const sql = yield* pendingSql(options);
      if (dryRun) return yield* write(`${sql || "-- The schema is up to date."}\n`);
      yield* migratePostgres(options);
      yield* write(`The schema ${sql === "" ? "was already" : "is now"} up to date.\n`);
    },
    Effect.scoped,
    Effect.provide(Settings.layer),
  ),
});
