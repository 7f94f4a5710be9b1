/**
 * What every connection asks for when it connects, and must have got: a connection pooler may keep it to itself.
 */
import { Effect } from "effect";
import { cannotBeUsed, type PostgresUnusable } from "./PostgresUnusable.ts";

/** SQL for what a connection got, as columns. */
export const granted = `current_setting('search_path') as "searchPath",
  current_schema() as "currentSchema",
  current_setting('default_transaction_isolation') as isolation`;

export interface Granted {
  readonly searchPath: string;
  /** Where unqualified names lead; `null` when that is nowhere yet. */
  readonly currentSchema: string | null;
  readonly isolation: string;
}

/** The search path that leads to a schema alone: its name, quoted. */
export const searchPathOf = (schema: string): string => `"${schema.replaceAll('"', '""')}"`;

/** The schema that a search path names first. */
export const firstOf = (searchPath: string): string | undefined => {
  const [, quoted, plain] = /^\s*(?:"((?:[^"]|"")*)"|([^",\s]+))/.exec(searchPath) ?? [];
  return quoted?.replaceAll('""', '"') ?? plain?.toLowerCase();
};

/** Fails for a connection that cannot serve the schema with what it got. */
export const mustBeGranted = (
  { isolation, searchPath }: Granted,
  schema: string,
): Effect.Effect<void, PostgresUnusable> => {
  const missing =
    firstOf(searchPath) !== schema
      ? `the search_path "${schema}" gets ${searchPath === "" ? "none" : searchPath}`
      : isolation !== "read committed"
        ? `the default_transaction_isolation "read committed" gets ${isolation}`
        : null;
  return missing === null
    ? Effect.void
    : cannotBeUsed(
        `a connection that asks for ${missing}: behind a connection pooler it must be set for the role`,
      );
};
