/**
 * Brings a schema up to date. A starting server first only reads which migrations have been applied, so that it does
 * not wait for a dump, and can start even if its role may not change the schema.
 */
import { Effect, Schedule } from "effect";
import { SqlClient, SqlError } from "effect/sql";
import { deadlines } from "../connections/Deadlines.ts";
import { cannotBeUsed, codeOf, isDeadlock, isLockTimeout } from "../connections/PgErrors.ts";
import { quoteName } from "../connections/PgParams.ts";
import { checkDatabase } from "../connections/ServerChecks.ts";
import { initial } from "./0001_initial.ts";

const hashOf = (text: string) =>
  Array.from(text).reduce(
    (hash, letter) => Math.imul(hash ^ letter.codePointAt(0)!, 0x1000193),
    0,
  ) >>> 0;

/** A migration may change until it is released. Its name in the database shows which SQL created the schema. */
export const migrations = [{ name: "initial", text: initial }].map(({ name, text }, index) => ({
  id: index + 1,
  name: `${name}_${hashOf(text).toString(16)}`,
  text: text.trim(),
}));

type Migrations = typeof migrations;

const table = "parley_schema";

// Reads the catalog, so that a session in a transaction sees relations that other sessions have created meanwhile.
const schemaRow = `
select exists (select from pg_namespace where nspname = $1) as exists,
  exists (select from pg_tables where schemaname = $1 and tablename = '${table}') as "hasTable"`;

/** Returns whether the schema exists, and what it lacks. Fails if its migrations are not this version's, or are more. */
const pendingMigrations = Effect.fnUntraced(function* (schema: string, migrations: Migrations) {
  const sql = yield* SqlClient.SqlClient;
  type SchemaRow = { readonly exists: boolean; readonly hasTable: boolean };
  const [row] = yield* sql.unsafe<SchemaRow>(schemaRow, [schema]);
  const { exists, hasTable } = row!;
  const names = sql.unsafe<{ readonly name: string }>(
    `select name from ${table} order by migration_id`,
  );
  const appliedRows = hasTable ? yield* names : [];
  if (appliedRows.some(({ name }, n) => n < migrations.length && migrations[n]!.name !== name)) {
    return yield* cannotBeUsed(
      "its schema was not created by the migrations of this version of Parley: set the option schema (on a server PARLEY_SCHEMA) to another schema",
    );
  }
  if (appliedRows.length > migrations.length) {
    return yield* cannotBeUsed(
      `its schema has migration ${appliedRows.length}, which this version of Parley does not recognize: use a newer version`,
    );
  }
  return { exists, missingMigrations: migrations.slice(appliedRows.length) };
});

const createSchema = (schema: string) => `create schema ${quoteName(schema)};`;

/** What a program or an operator can do if the role cannot change the schema. */
export const migrateAsOwner =
  "call migratePostgres with the owner's URL (on a server, run \"parley migrate\" with the owner's DATABASE_URL)";

/** What an operator can do about a migration error, keyed by SQLSTATE. */
const hints: Readonly<Record<string, string>> = {
  "42501": `its schema is not up to date, and the role cannot change it: ${migrateAsOwner}`,
  "42P07":
    "its schema already has a table with the same name as one of Parley's, created by another program: set the option schema (on a server PARLEY_SCHEMA) to another schema",
};

const lock = 7275395391;

// Without further privileges, the role cannot see the state of another role's session, or when its transaction began.
const blockersOf = `
select string_agg(concat_ws(', ', 'process ' || pid, '"' || nullif(application_name, '') || '"', state,
  'since ' || to_char(xact_start at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"')), '; ') as blockers
from pg_stat_activity where pid in (
  select unnest(pg_blocking_pids(pid)) from pg_locks
  where locktype = 'advisory' and granted and classid::int8 << 32 | objid::int8 = ${lock})`;

/**
 * Brings the schema up to date; two SELECTs suffice if it already is. Servers that start together wait for each other.
 * While a migration waits for a table, other statements on the table wait for the migration. So the migration gives up
 * and is retried a few times, as after a deadlock, and then fails with an error that names the table's lock holders.
 */
export const migrate = Effect.fnUntraced(function* (schema: string, all: Migrations = migrations) {
  const sql = yield* SqlClient.SqlClient;
  if ((yield* pendingMigrations(schema, all)).missingMigrations.length === 0) return;

  const apply = Effect.gen(function* () {
    // Behind a pooler, the role's timeouts would otherwise apply.
    yield* sql.unsafe("set local statement_timeout = 0");
    yield* sql.unsafe("set local lock_timeout = 0");
    yield* sql.unsafe(`select pg_advisory_xact_lock(${lock})`);
    yield* sql.unsafe(`set local lock_timeout = ${deadlines.migrationLock}`);
    const { exists, missingMigrations } = yield* pendingMigrations(schema, all);
    if (!exists) {
      yield* sql.unsafe(createSchema(schema));
      // A pooler may ignore the connection's search path.
      yield* checkDatabase(schema);
    }
    for (const { id, name, text } of missingMigrations) {
      // Every statement ends with a semicolon at the end of a line; outside function bodies, no other line does.
      for (const [statement] of text.matchAll(/(\$\$[^]*?\$\$|[^$])+?;$/gm)) {
        yield* sql.unsafe(statement);
      }
      yield* sql.unsafe(`insert into ${table} (migration_id, name) values ($1, $2)`, [id, name]);
    }
  });
  let holders = "another session";
  const watch = sql.unsafe<{ readonly blockers: string | null }>(blockersOf).pipe(
    Effect.tap(([row]) => Effect.sync(() => (holders = row!.blockers ?? holders))),
    Effect.ignore,
    Effect.delay("1 second"),
    Effect.forever,
  );
  yield* Effect.raceFirst(sql.withTransaction(apply), watch).pipe(
    Effect.retry({
      while: (error) => isLockTimeout(error) || isDeadlock(error),
      times: 3,
      schedule: Schedule.spaced("3 seconds"),
    }),
    Effect.mapError((error) => {
      const hint = isLockTimeout(error)
        ? `its schema is not up to date, and cannot be changed while a table is locked by ${holders}: end every session that holds a lock on it, or try again later`
        : SqlError.isSqlError(error) && hints[codeOf(error)];
      return hint ? cannotBeUsed(hint, error) : error;
    }),
  );
});

/** Returns the SQL of the migrations that {@link migrate} would run; empty if the schema is up to date. */
export const pendingSql = (schema: string) =>
  Effect.map(pendingMigrations(schema, migrations), ({ exists, missingMigrations }) =>
    [...(exists ? [] : [createSchema(schema)]), ...missingMigrations.map(({ text }) => text)]
      .map((text) => `${text}\n`)
      .join("\n"),
  );
