/**
 * Brings a schema up to date. A start and a dry run use the same list of statements; applied migrations are recorded in the
 * table of Effect's Migrator, which cannot print what it would run.
 */
import { Effect } from "effect";
import { SqlClient, SqlError } from "effect/sql";
import { cannotBeUsed, codeOf } from "../database/PgErrors.ts";
import { quoteSchema, texts } from "../database/PgParams.ts";
import { initial } from "./0001_initial.ts";

const migrations = [{ name: "initial", text: initial }];

/** Records the migrations that were applied. */
const table = "parley_schema";

/** The tables, views and sequences of the migrations. */
const relations = migrations.flatMap(({ text }) =>
  [...text.matchAll(/^create (?:table|view|sequence) (\w+)/gm)].map(([, name]) => name!),
);

/** A table of versions with migrations of another kind. */
const former = "parley_migration";

interface SchemaRow {
  readonly schema: string | null;
  readonly names: ReadonlyArray<string>;
}

// A select from a table, so that a session in a transaction learns of relations that others have created since.
const schemaRow = `
select current_schema() as schema, array(
  select relname::text from pg_class
  where relnamespace = (select oid from pg_namespace where nspname = current_schema())
    and relname = any ($1::text[]) order by relname
) as names`;

/** Every statement ends with a semicolon at the end of a line, and no other line ends so. */
const statementsOf = (text: string): ReadonlyArray<string> =>
  text
    .split(/;$/m)
    .map((statement) => statement.trim())
    .filter((statement) => statement !== "");

/** The statements of the migrations that are missing; fails for a schema that this version must not change. */
const pending = Effect.fnUntraced(function* (schema: string) {
  const sql = yield* SqlClient.SqlClient;
  const wanted = [...relations, table, former];
  const [row] = yield* sql.unsafe<SchemaRow>(schemaRow, [texts(wanted)]);
  const { names } = row!;
  if (names.includes(former)) {
    return yield* cannotBeUsed(
      `the schema "${schema}" is that of an earlier version of Parley: export the chats with that version, and import them into another schema or database with this one`,
    );
  }
  const isOurs = names.includes(table);
  if (names.length > 0 && !isOurs) {
    return yield* cannotBeUsed(
      `"${names[0]}" in the schema "${schema}" is not Parley's: name another schema in PARLEY_SCHEMA`,
    );
  }
  const [applied] = isOurs
    ? yield* sql.unsafe<{ readonly id: number | null }>(
        `select max(migration_id) as id from ${table}`,
      )
    : [];
  const id = applied?.id ?? 0;
  if (id > migrations.length) {
    return yield* cannotBeUsed(
      `its schema has migration ${id}, which this version of Parley does not know`,
    );
  }
  if (id === migrations.length) return [];
  return [
    ...(row!.schema === null ? [`create schema ${quoteSchema(schema)}`] : []),
    `create table if not exists ${table} (
  migration_id integer primary key,
  created_at timestamp with time zone not null default now(),
  name text not null
)`,
    ...migrations
      .slice(id)
      .flatMap(({ name, text }, at) => [
        ...statementsOf(text),
        `insert into ${table} (migration_id, name) values (${id + at + 1}, '${name}')`,
      ]),
  ];
});

/** Servers that start together wait for each other. */
const lock = "select pg_advisory_xact_lock(7275395391)";

/**
 * Brings the schema up to date. For one that is, two SELECTs suffice, which wait for no dump and which a role that may only
 * read is allowed to run.
 */
export const migrate = Effect.fnUntraced(
  function* (schema: string) {
    const sql = yield* SqlClient.SqlClient;
    if ((yield* pending(schema)).length === 0) return;
    yield* sql.withTransaction(
      Effect.gen(function* () {
        yield* sql.unsafe(lock);
        const statements = yield* pending(schema);
        yield* Effect.forEach(statements, (statement) => sql.unsafe(statement), { discard: true });
      }),
    );
  },
  Effect.mapError((error) =>
    SqlError.isSqlError(error) && codeOf(error) === "42501"
      ? cannotBeUsed(
          "its schema is not up to date, and the role may not change it: run DATABASE_URL=<owner> parley migrate",
          error,
        )
      : error,
  ),
);

/** The SQL that {@link migrate} would run, as one transaction; empty if the schema is up to date. */
export const pendingSql = Effect.fnUntraced(function* (schema: string) {
  const statements = yield* pending(schema);
  if (statements.length === 0) return "";
  const path = `set local search_path = ${quoteSchema(schema)}`;
  return ["begin isolation level read committed", lock, path, ...statements, "commit"]
    .map((statement) => `${statement};\n`)
    .join("\n");
});
