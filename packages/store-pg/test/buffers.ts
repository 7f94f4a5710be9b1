/**
 * Counts the buffers that a statement touches. The number is the same on every machine.
 */
import { PgTypes } from "@effect/sql-pg";
import { Effect } from "effect";
import type { SqlClient } from "effect/sql";
import type { Statement } from "../src/connections/Session.ts";

/** The most buffers touched by any node of a plan. The root's count omits CTEs to which nothing refers. */
export const mostOf = (plan: any): number =>
  Math.max(touchedBy(plan), ...(plan.Plans ?? []).map(mostOf));

let statements = 0;

/** Returns a value as an SQL literal. */
export const literal = (value: unknown): string => {
  if (PgTypes.isParameter(value)) {
    const items = (value.value as ReadonlyArray<unknown>).map((item) =>
      typeof item === "string" ? JSON.stringify(item) : String(item),
    );
    return `'{${items.join()}}'`;
  }
  return typeof value === "string" ? `'${value.replaceAll("'", "''")}'` : String(value);
};

/** The number of buffers touched by a node of an executed plan, including the nodes below it. */
const touchedBy = (node: any): number => node["Shared Hit Blocks"] + node["Shared Read Blocks"];

/** Executes a statement with a generic or custom plan, and returns the number of buffers touched. */
export const buffers = Effect.fnUntraced(function* (
  sql: SqlClient.SqlClient,
  { text, values }: Statement,
  mode: "force_generic_plan" | "force_custom_plan" = "force_generic_plan",
) {
  yield* sql.unsafe(`set plan_cache_mode = ${mode}`);
  const name = `statement_${++statements}`;
  yield* sql.unsafe(`prepare ${name} as ${text}`);
  const parameters = values.length === 0 ? "" : `(${values.map(literal).join(", ")})`;
  const [row] = yield* sql.unsafe<{ readonly "QUERY PLAN": any }>(
    `explain (analyze, buffers, format json) execute ${name}${parameters}`,
  );
  return touchedBy(row!["QUERY PLAN"][0].Plan);
});
