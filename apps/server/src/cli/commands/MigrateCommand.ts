import { migratePostgres, pendingSql } from "@parley/store-pg";
import { Effect } from "effect";
import { Command, Flag } from "effect/cli";
import { Settings } from "../../Settings.ts";
import { databaseOptions } from "../Database.ts";
import { printText } from "../Output.ts";

export const migrate = Command.make(
  "migrate",
  {
    dryRun: Flag.Boolean("dry-run").pipe(
      Flag.withDefault(false),
      Flag.withDescription("Print the SQL and run none of it"),
    ),
  },
  ({ dryRun }) =>
    Effect.gen(function* () {
      const options = yield* databaseOptions;
      const sql = yield* pendingSql(options);
      if (dryRun) return yield* printText(sql || "-- The schema is up to date.");
      yield* migratePostgres(options);
      yield* printText(
        sql === "" ? "The schema is up to date." : "The schema was brought up to date.",
      );
    }).pipe(Effect.scoped, Effect.provide(Settings.layer)),
).pipe(
  Command.withDescription("Bring the database's schema up to date, as every start does"),
  Command.withExamples([
    { command: "parley migrate --dry-run", description: "Print the SQL first" },
  ]),
);
