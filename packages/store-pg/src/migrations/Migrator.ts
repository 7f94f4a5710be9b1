/**
 * Brings a schema up to date by Effect's Migrator. A start asks for the newest migration first: the Migrator locks its
 * table exclusively, so it would wait for a dump, and a role that may only read could not start.
 */
import { describeCause } from "@parley/core";
import { Effect } from "effect";
import { Migrator, SqlClient, SqlError } from "effect/sql";
import { cannotBeUsed, codeOf } from "../database/PgErrors.ts";
import { quoteSchema } from "../database/PgParams.ts";
import { checkDatabase } from "../database/ServerChecks.ts";
import { initial } from "./0001_initial.ts";
import { keys } from "./0002_keys.ts";

const migrations = [
  { name: "initial", text: initial },
  { name: "keys", text: keys },
];

/** Records the migrations that were applied. */
const table = "parley_schema";

// A select from tables, so that a session in a transaction learns of relations that others have created since.
const schemaRow = `
select exists (select from pg_namespace where nspname = $1) as exists,
  exists (select from pg_tables where schemaname = $1 and tablename = '${table}') as migrated`;

/** The SQL that is missing, first that of the schema; fails for a schema of a later version. */
const pending = Effect.fnUntraced(function* (schema: string) {
  const sql = yield* SqlClient.SqlClient;
  const [row] = yield* sql.unsafe<{ readonly exists: boolean; readonly migrated: boolean }>(
    schemaRow,
    [schema],
  );
  const { exists, migrated } = row!;
  const [newest] = migrated
    ? yield* sql.unsafe<{ readonly id: number | null }>(
        `select max(migration_id) as id from ${table}`,
      )
    : [];
  const id = newest?.id ?? 0;
  if (id > migrations.length) {
    return yield* cannotBeUsed(
      `its schema has migration ${id}, which this version of Parley does not know`,
    );
  }
  const missing = migrations.slice(id).map(({ text }) => text.trim());
  return exists ? missing : [createSchema(schema), ...missing];
});

const createSchema = (schema: string) => `create schema ${quoteSchema(schema)};`;

const loader = Migrator.fromRecord(
  Object.fromEntries(
    migrations.map(({ name, text }, at) => [
      `${at + 1}_${name}`,
      SqlClient.SqlClient.use((sql) =>
        // Every statement ends with a semicolon at the end of a line, and no other line ends so.
        Effect.forEach(
          text.split(/;$/m).filter((statement) => statement.trim() !== ""),
          (statement) => sql.unsafe(statement),
          { discard: true },
        ),
      ),
    ]),
  ),
);

/** What an operator can do about an error of a migration, by SQLSTATE. */
const hints: Readonly<Record<string, string>> = {
  "42501":
    "its schema is not up to date, and the role may not change it: run DATABASE_URL=<owner> parley migrate",
  "42P07":
    "its schema has a table of another program, with the name of one of Parley's: name another schema in PARLEY_SCHEMA",
};

/**
 * Brings the schema up to date. If it is, two SELECTs find that out: they wait for no dump, and a role that may only
 * read can run them. Servers that start together wait for each other.
 */
export const migrate = Effect.fnUntraced(
  function* (schema: string) {
    const sql = yield* SqlClient.SqlClient;
    if ((yield* pending(schema)).length === 0) return;
    yield* sql.withTransaction(
      Effect.gen(function* () {
        yield* sql.unsafe("select pg_advisory_xact_lock(7275395391)");
        const [first] = yield* pending(schema);
        if (first === createSchema(schema)) {
          yield* sql.unsafe(first);
          // A pooler may ignore the search path of the connection.
          yield* checkDatabase(schema);
        }
        if (first !== undefined) yield* Migrator.make({})({ loader, table });
      }),
    );
  },
  Effect.mapError((error) => {
    const cause = error._tag === "MigrationError" ? error.cause : error;
    const hint = SqlError.isSqlError(cause) ? hints[codeOf(cause)] : undefined;
    if (hint !== undefined) return cannotBeUsed(hint, cause);
    return error._tag === "MigrationError" ? cannotBeUsed(describeCause(error), error) : error;
  }),
);

/** The SQL of the migrations that {@link migrate} would run; empty if the schema is up to date. */
export const pendingSql = (schema: string) =>
  Effect.map(pending(schema), (missing) => missing.map((text) => `${text}\n`).join("\n"));
