import { layerPostgres, lettingInSql, pendingSql, type PostgresOptions } from "@parley/store-pg";
import { Effect } from "effect";
import { Command, Flag } from "effect/cli";
import { Settings } from "../../Settings.ts";
import { databaseOptions } from "../Database.ts";
import { printText } from "../Output.ts";

/** All the SQL that is to run. The grants of the server's role are known only once the tables are there. */
const planOf = Effect.fnUntraced(function* (options: PostgresOptions, pending: string) {
  if (pending !== "") {
    return options.migrationUrl === undefined
      ? pending
      : `${pending}\n-- Then the role of DATABASE_URL is let in; a dry run after this tells how.`;
  }
  return (yield* lettingInSql(options)) || "-- The schema is up to date.";
});

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
      if (dryRun) return yield* printText(yield* planOf(options, sql));
      yield* Effect.provide(Effect.void, layerPostgres(options));
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
