/**
 * The PostgreSQL store in a schema of its own, and direct access to its rows.
 */
import * as PgClient from "@effect/sql-pg/PgClient";
import { storeUnderTest } from "@parley/core/testing";
import { layerPostgres, migratePostgres, type PostgresOptions } from "@parley/store-pg";
import { quoteName } from "../src/connections/PgParams.ts";
import { Effect, Layer, Redacted } from "effect";
import { Reactivity } from "effect/reactivity";
import { readFileSync } from "node:fs";
import { inject } from "vitest";

declare module "vitest" {
  interface ProvidedContext {
    postgresUrl: string;
    roleUrls: Readonly<Record<"server" | "superuser", string>>;
    postgresVersion: number;
  }
}

let schemas = 0;

/** Names a schema that no other test uses. */
export const freshSchema = (): string => `test_${process.pid}_${Date.now()}_${++schemas}`;

type TestOptions = PostgresOptions & { readonly schema: string };

export const optionsOf = (schema: string): TestOptions => ({
  url: Redacted.make(inject("postgresUrl")),
  schema,
});

/** The options for a server whose role does not own the tables, and has only the documented grants. */
export const granted = () => ({ url: Redacted.make(inject("roleUrls").server) });

/** The URL at which the tables' owner connects to the database in the options. */
const ownerIn = ({ url }: PostgresOptions) =>
  inDatabase(new URL(Redacted.value(url)).pathname.slice(1), Redacted.make(inject("postgresUrl")));

/** Returns the documented statements that grant a server's role its privileges on a schema. */
const grantsTo = (role: string, schema: string): ReadonlyArray<string> => {
  const page = readFileSync(new URL("../../../docs/operations.md", import.meta.url), "utf8");
  const [, block] = /```sql\n(grant usage on schema parley to [^`]*)```/.exec(page)!;
  return block!
    .replaceAll("parley_server", role)
    .replaceAll("parley.", `${quoteName(schema)}.`)
    .replaceAll("schema parley", `schema ${quoteName(schema)}`)
    .split(/;$/m)
    .filter((statement) => statement.trim() !== "");
};

/** The store. For the role of {@link granted}, the owner first migrates the schema and grants the role its privileges. */
export const layerStore = (options: PostgresOptions) =>
  Layer.unwrap(
    Effect.gen(function* () {
      const role = new URL(Redacted.value(options.url)).username;
      if (role === new URL(inject("roleUrls").server).username) {
        const { schema = "parley" } = options;
        const owner = ownerIn(options);
        yield* migratePostgres({ ...options, url: owner });
        const sql = yield* clientOf(schema, 1, owner);
        for (const statement of grantsTo(role, schema)) yield* sql.unsafe(statement);
      }
      return layerPostgres(options);
    }).pipe(Effect.scoped),
  );

/** Opens and closes the store, which brings the schema up to date. */
export const start = (options: PostgresOptions) =>
  Effect.scoped(Layer.build(layerPostgres(options)));

/** Opens the store, which must fail, and returns the error message. */
export const refusal = (options: PostgresOptions) =>
  Effect.map(Effect.flip(start(options)), ({ message }) => message);

/** A plain client whose search path is the schema. */
export const clientOf = (schema: string, maxConnections = 2, url = optionsOf(schema).url) =>
  PgClient.make({
    url,
    maxConnections,
    startupParameters: { search_path: quoteName(schema) },
  }).pipe(Effect.provide(Reactivity.layer));

/** The URL of another database on the same server, for the same role. */
export const inDatabase = (name: string, url: Redacted.Redacted) => {
  const address = new URL(Redacted.value(url));
  address.pathname = `/${name}`;
  return Redacted.make(address.href);
};

/** A superuser's client in a database. */
export const superuserIn = (name: string, maxConnections = 1) =>
  clientOf("parley", maxConnections, inDatabase(name, Redacted.make(inject("roleUrls").superuser)));

/** Creates a database and a plain client for it. `more` is appended to CREATE DATABASE. */
export const freshDatabase = Effect.fnUntraced(function* (more = "") {
  // A superuser can drop the database while other roles are connected. Each statement has its own client, because a
  // client cannot open a connection while its scope closes.
  const asSuperuser = (statement: string) =>
    superuserIn("postgres").pipe(
      Effect.flatMap((sql) => sql.unsafe(statement)),
      Effect.scoped,
    );
  const name = freshSchema();
  const { url } = optionsOf("parley");
  const owner = new URL(Redacted.value(url)).username;
  yield* Effect.acquireRelease(
    asSuperuser(`create database ${name} owner ${owner} template template0 ${more}`),
    () => Effect.orDie(asSuperuser(`drop database ${name} with (force)`)),
  );
  const options = { url: inDatabase(name, url) };
  /** Ends the store's connections. */
  const disconnect = asSuperuser(
    `select pg_terminate_backend(pid) from pg_stat_activity where datname = '${name}' and application_name = 'parley'`,
  );
  return { ...options, name, sql: yield* clientOf("parley", 1, options.url), disconnect };
});

/** The store in a schema of its own, with everything else that the checks require. */
export const layerPostgresUnderTest = (more: Partial<TestOptions> = {}) => {
  const options = { ...optionsOf(freshSchema()), ...more };
  const pass = Effect.fnUntraced(function* (millis: number) {
    const sql = yield* clientOf(options.schema, 1, ownerIn(options));
    for (const statement of earlier) yield* sql.unsafe(statement, [millis]);
  });
  return storeUnderTest(layerStore(options), {
    pass: (millis) => Effect.orDie(Effect.scoped(pass(millis))),
  });
};

const interval = "$1::int8 * interval '1 millisecond'";
const earlier = [
  `update chat set turn_until = turn_until - ${interval} where turn_until is not null`,
  // `day` is a date, so only whole days pass. Nothing reads what was spent on a day before the present one.
  "delete from key_spending where $1::int8 >= 86400000 and day < (now() at time zone 'UTC')::date",
  "update key_spending set day = day - ($1::int8 / 86400000)::int",
  `update idempotency_key set made_at = made_at - ${interval}, turn_until = turn_until - ${interval}`,
];
