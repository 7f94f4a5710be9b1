/**
 * Brings a schema up to date, with Effect's Migrator, and looks whether it is.
 */
import { foldVersion } from "@parley/core";
import { Effect } from "effect";
import { Migrator, SqlClient, SqlError } from "effect/sql";
import { searchPathOf } from "../Parameters.ts";
import { cannotBeUsed, type PostgresUnusable } from "../PostgresUnusable.ts";
import { initial } from "./0001_initial.ts";

export const migrations: Readonly<Record<string, string>> = { "0001_initial": initial };

const newest = Object.keys(migrations).length;

/** Where the Migrator keeps which migrations have run. */
const table = "parley_schema";

/** The tables, views and sequences that the migrations make. */
const relations: ReadonlyArray<string> = [
  table,
  ...Object.values(migrations).flatMap((text) =>
    [...text.matchAll(/^create (?:table|view|sequence) (\w+)/gm)].map(([, name]) => name!),
  ),
];

/** The tables of versions that had migrations of their own kind. */
const former = ["parley_migration", "tally"];

const inSchema = "relnamespace = (select oid from pg_namespace where nspname = current_schema())";

const listed = (names: ReadonlyArray<string>) => names.map((name) => `'${name}'`).join(", ");

/** SQL that is true for Parley's relations: others may have tables in the same schema. */
export const isOurs = `${inSchema} and relname in (${listed(relations)})`;

/** Every statement ends a line, and nothing else ends one with a semicolon. */
const statementsOf = (text: string): ReadonlyArray<string> =>
  text
    .split(/;$/m)
    .map((statement) => statement.trim())
    .filter((statement) => statement !== "");

/** How many of the migrations have run; fails for a schema that this version must not touch. */
const applied: Effect.Effect<number, PostgresUnusable | SqlError.SqlError, SqlClient.SqlClient> =
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient;
    // Reads a table, by which a session learns in the middle of a transaction what others have created.
    const found = yield* sql.unsafe<{ readonly schema: string; readonly name: string }>(
      `select current_schema() as schema, relname as name from pg_class
    where ${inSchema} and relname in (${listed([...relations, ...former])}) order by relname`,
    );
    if (found.length === 0) return 0;
    const { name, schema } = found[0]!;
    if (found.some(({ name }) => former.includes(name))) {
      return yield* cannotBeUsed(
        `the schema "${schema}" is that of an earlier version of Parley: export the chats with that version, and import them into another schema or database with this one`,
      );
    }
    const hasRun = found.some(({ name }) => name === table)
      ? yield* sql.unsafe<{ readonly id: number | null }>(
          `select max(migration_id) as id from ${table}`,
        )
      : [];
    const id = hasRun[0]?.id ?? 0;
    if (id === 0 && name !== table) {
      return yield* cannotBeUsed(
        `"${name}" in the schema "${schema}" is not Parley's: name another schema in PARLEY_SCHEMA`,
      );
    }
    if (id > newest) {
      return yield* cannotBeUsed(
        `its schema has migration ${id}, which this version of Parley does not know`,
      );
    }
    return id;
  });

/** A number that nothing else in a database is likely to lock. */
const migrationLock = 7_275_395_391;

const lockMigrations = `select pg_advisory_xact_lock(${migrationLock})`;

/** Whether the schema that the search path names is still to be made. */
const isMissing = SqlClient.SqlClient.use((sql) =>
  Effect.map(
    sql.unsafe<{ readonly missing: boolean }>("select current_schema() is null as missing"),
    ([place]) => place!.missing,
  ),
);

const runAll = (sql: SqlClient.SqlClient, statements: ReadonlyArray<string>) =>
  Effect.forEach(statements, (statement) => sql.unsafe(statement), { discard: true });

const runMigrator = Migrator.make({})({
  table,
  loader: Migrator.fromRecord(
    Object.fromEntries(
      Object.entries(migrations).map(([name, text]) => [
        name,
        SqlClient.SqlClient.use((sql) => runAll(sql, statementsOf(text))),
      ]),
    ),
  ),
});

/** SQLSTATE of a statement that the role may not run. */
const isForbidden = ({ reason }: SqlError.SqlError) =>
  (reason.cause as { readonly code?: unknown } | undefined)?.code === "42501";

/**
 * Brings the schema up to date. One that is needs no more than two SELECTs: the Migrator itself locks its table, which a
 * role may not be allowed to, and for which it would wait behind a dump. Servers that start together wait for each other.
 */
export const migrate = Effect.fnUntraced(
  function* (schema: string) {
    const sql = yield* SqlClient.SqlClient;
    if ((yield* applied) === newest) return;
    yield* sql.withTransaction(
      Effect.gen(function* () {
        yield* sql.unsafe(lockMigrations);
        if ((yield* applied) === newest) return;
        if (yield* isMissing) yield* sql.unsafe(`create schema ${searchPathOf(schema)}`);
        yield* Effect.mapError(runMigrator, (error) =>
          SqlError.isSqlError(error)
            ? error
            : SqlError.isSqlError(error.cause)
              ? error.cause
              : cannotBeUsed(error.message, error),
        );
      }),
    );
  },
  Effect.mapError((error): PostgresUnusable | SqlError.SqlError =>
    SqlError.isSqlError(error) && isForbidden(error)
      ? cannotBeUsed(
          "its schema is not up to date, and the role may not change it: run DATABASE_URL=<owner> parley migrate",
          error,
        )
      : error,
  ),
);

/** One transaction of the statements, as a text. Each sees what others did before, whatever the default is. */
const scriptOf = (statements: ReadonlyArray<string>): string =>
  ["begin isolation level read committed", ...statements, "commit"]
    .map((statement) => `${statement};\n`)
    .join("\n");

/** The SQL that {@link migrate} would run; empty when the schema is up to date. */
export const pendingSql = Effect.fnUntraced(function* (schema: string) {
  const id = yield* applied;
  if (id === newest) return "";
  const path = searchPathOf(schema);
  return scriptOf([
    lockMigrations,
    `set local search_path = ${path}`,
    ...((yield* isMissing) ? [`create schema ${path}`] : []),
    `create table if not exists ${table} (
  migration_id integer primary key,
  created_at timestamp with time zone not null default now(),
  name text not null
)`,
    ...Object.entries(migrations)
      .slice(id)
      .flatMap(([key, text]) => {
        const [, number, name] = /^(\d+)_(.*)$/.exec(key)!;
        return [
          ...statementsOf(text),
          `insert into ${table} (migration_id, name) values (${Number(number)}, '${name}')`,
        ];
      }),
  ]);
});

/** Fails when the names in a schema that is up to date are folded otherwise than this software folds. */
export const foldMustFit: Effect.Effect<
  void,
  PostgresUnusable | SqlError.SqlError,
  SqlClient.SqlClient
> = SqlClient.SqlClient.use((sql) =>
  Effect.flatMap(sql.unsafe<{ readonly version: number }>("select version from fold"), ([found]) =>
    found?.version === foldVersion
      ? Effect.void
      : cannotBeUsed(
          `its names are folded by version ${found?.version}, and this Parley folds by version ${foldVersion}`,
        ),
  ),
);
