/**
 * A schema in which row security applies to the server, in a database that has the test roles.
 */
import * as PgClient from "@effect/sql-pg/PgClient";
import { migratePostgres } from "@parley/store-pg";
import { Effect, Redacted } from "effect";
import { Reactivity } from "effect/reactivity";
import { readFile } from "node:fs/promises";

declare module "vitest" {
  interface ProvidedContext {
    postgresUrl: string;
    roleUrls: Readonly<Record<"server" | "bound" | "superuser" | "bypassing", string>>;
  }
}

/** Creates the schema as its owner, runs the grants from the documentation, and returns the server's settings. */
export const boundDatabase = async (owner: string, bound: string, schema: string) => {
  const page = await readFile(new URL("../../../docs/operations.md", import.meta.url), "utf8");
  const [, block] = /```sql\n(create role parley_server[^`]*)```/.exec(page)!;
  const grants = block!
    .replaceAll("parley_server", new URL(bound).username)
    .replaceAll("parley.", `${schema}.`)
    .replaceAll("schema parley", `schema ${schema}`)
    .split(/;$/m)
    .filter((statement) => /^\s*grant/.test(statement));
  const url = Redacted.make(owner);
  await migratePostgres({ url, schema }).pipe(
    Effect.andThen(PgClient.make({ url })),
    Effect.flatMap((sql) => Effect.forEach(grants, (grant) => sql.unsafe(grant))),
    Effect.provide(Reactivity.layer),
    Effect.scoped,
    Effect.runPromise,
  );
  return { DATABASE_URL: bound, PARLEY_SCHEMA: schema, PARLEY_ROW_SECURITY: "true" };
};
