/**
 * Brings a schema up to date by Effect's Migrator. A start asks for the newest migration first: the Migrator locks its
 * table exclusively, so it would wait for a dump, and a role that may only read could not start.
 */
import { describeCause } from "@parley/core";
import { Effect } from "effect";
import { Migrator, SqlClient, SqlError } from "effect/sql";
import { cannotBeUsed, codeOf } from "../database/PgErrors.ts";
import { quoteSchema, texts } from "../database/PgParams.ts";
import { initial } from "./0001_initial.ts";
import { keys } from "./0002_keys.ts";

const migrations = [
  { name: "initial", text: initial },
  { name: "keys", text: keys },
];

/** Records the migrations that were applied. */
const table = "parley_schema";

/** The tables, views and sequences of the migrations. */
const relations = migrations.flatMap(({ text }) =>
  [...text.matchAll(/^create (?:table|view|sequence) (\w+)/gm)].map(([, name]) => name!),
);

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

/** The SQL of the migrations that are missing; fails for a schema that this version must not change. */
const pending = Effect.fnUntraced(function* (schema: string) {
  const sql = yield* SqlClient.SqlClient;
  const [row] = yield* sql.unsafe<SchemaRow>(schemaRow, [texts([...relations, table])]);
  const { names } = row!;
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
  const missing = migrations.slice(id).map(({ text }) => text.trim());
  if (missing.length > 0 && row!.schema === null) missing.unshift(createSchema(schema));
  return missing;
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
        if (first === undefined) return;
        if (first === createSchema(schema)) {
          yield* sql.unsafe(first);
          // A pooler may ignore the search path of the connection.
          const [path] = yield* sql.unsafe<SchemaRow>(schemaRow, [texts([])]);
          if (path!.schema === null) {
            return yield* cannotBeUsed("no schema has been selected to create in");
          }
        }
        yield* Migrator.make({})({ loader, table });
      }),
    );
  },
  Effect.mapError((error) => {
    const cause = error._tag === "MigrationError" ? error.cause : error;
    if (SqlError.isSqlError(cause) && codeOf(cause) === "42501") {
      return cannotBeUsed(
        "its schema is not up to date, and the role may not change it: run DATABASE_URL=<owner> parley migrate",
        cause,
      );
    }
    return error._tag === "MigrationError" ? cannotBeUsed(describeCause(error), error) : error;
  }),
);

/** The SQL of the migrations that {@link migrate} would run; empty if the schema is up to date. */
export const pendingSql = (schema: string) =>
  Effect.map(pending(schema), (missing) => missing.map((text) => `${text}\n`).join("\n"));
