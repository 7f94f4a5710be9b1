/**
 * Checks of a database, and of the server's role in it, at the start.
 */
import { Effect } from "effect";
import { SqlClient } from "effect/sql";
import { cannotBeUsed } from "./PgErrors.ts";

interface DatabaseRow {
  readonly version: string;
  readonly encoding: string;
  readonly isolation: string;
  /** The schema of names without one; `null` if there is none. */
  readonly current_schema: string | null;
  readonly role: string;
  /** Whether the role may use the schema; `null` if there is none. */
  readonly usable: boolean | null;
  readonly readOnly: boolean;
}

const databaseRow = `
select current_setting('server_version') as version, current_setting('server_encoding') as encoding,
  current_setting('default_transaction_isolation') as isolation,
  current_schema() as current_schema, current_user as role,
  (select has_schema_privilege(oid, 'usage') from pg_namespace where nspname = $1) as usable,
  current_setting('transaction_read_only')::bool as "readOnly"`;

/** Fails if the statements would not work, or would work in another schema. Behind a pooler settings may be lost. */
export const checkDatabase = Effect.fnUntraced(function* (schema: string) {
  const sql = yield* SqlClient.SqlClient;
  const [row] = yield* sql.unsafe<DatabaseRow>(databaseRow, [schema]);
  const { current_schema, encoding, isolation, readOnly, role, usable, version } = row!;
  const problems = [
    Number.parseInt(version) < 15 && `it is PostgreSQL ${version}, and Parley needs 15 or later`,
    encoding !== "UTF8" && `its encoding is ${encoding}, and Parley needs UTF8`,
    isolation !== "read committed" &&
      `its connections have the isolation "${isolation}": behind a pooler, set default_transaction_isolation for the role`,
    usable === false &&
      `the role "${role}" may not use the schema "${schema}"; see "Roles of the database" in docs/operations.md`,
    current_schema !== schema &&
      (current_schema !== null || usable !== null) &&
      `the search_path does not lead to the schema "${schema}": behind a pooler, create the schema, and set search_path for the role`,
  ];
  const problem = problems.find((one) => one !== false);
  if (problem !== undefined) return yield* cannotBeUsed(problem);
  return { encoding, version, readOnly };
});

/** Fails if a server must not serve: lists would be empty for a role that row security binds without its setting. */
export const checkRole = Effect.fnUntraced(function* (rowSecurity: boolean) {
  const sql = yield* SqlClient.SqlClient;
  const [row] = yield* sql.unsafe<{ readonly role: string; readonly bound: boolean }>(
    "select current_user as role, row_security_active('chat') as bound",
  );
  const { bound, role } = row!;
  if (bound === rowSecurity) return;
  return yield* cannotBeUsed(
    bound
      ? `row security binds the role "${role}": set PARLEY_ROW_SECURITY=true, or connect as the owner of the tables`
      : `row security does not bind the role "${role}", as it is superuser, owns the tables or bypasses it: connect as another role, or unset PARLEY_ROW_SECURITY`,
  );
});
