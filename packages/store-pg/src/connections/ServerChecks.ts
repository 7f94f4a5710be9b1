/**
 * Checks a database at startup, and for a migration or an inspection.
 */
import { Effect } from "effect";
import { SqlClient } from "effect/sql";
import { deadlines, toSetting } from "./Deadlines.ts";
import { cannotBeUsed } from "./PgErrors.ts";
import { quoteName, texts } from "./PgParams.ts";
import type { Session } from "./Session.ts";

interface DatabaseRow {
  readonly version: string;
  readonly encoding: string;
  readonly database: string;
  /** The current values of the settings to check. */
  readonly settings: Readonly<Record<string, string>>;
  /** The schema to which unqualified names refer; `null` if there is none. */
  readonly current_schema: string | null;
  readonly role: string;
  readonly usable: boolean | null;
  readonly ctype: string;
  readonly mayMigrate: boolean;
}

const databaseRow = `
select current_setting('server_version') as version, current_setting('server_encoding') as encoding,
  quote_ident(current_database()) as database,
  (select json_object_agg(name, current_setting(name)) from unnest($2::text[]) as name) as settings,
  current_schema() as current_schema, current_user as role,
  (select has_schema_privilege(oid, 'usage') from pg_namespace where nspname = $1) as usable,
  (select datctype from pg_database where datname = current_database()) as ctype,
  coalesce(
    (select has_schema_privilege(n.oid, 'create') and not exists (
        select from pg_class where relnamespace = n.oid and relkind in ('r', 'S') and not pg_has_role(relowner, 'usage'))
      from pg_namespace n where nspname = $1),
    has_database_privilege(current_database(), 'create'))
  and (has_database_privilege(current_database(), 'create')
    or (select count(*) = 2 from pg_extension where extname in ('pg_trgm', 'btree_gin'))) as "mayMigrate"`;

/** The settings that the role needs behind a pooler, with values that suit every pool of `PgPools`. */
const roleSettings: Readonly<Record<string, string>> = {
  default_transaction_isolation: "read committed",
  jit: "off",
  idle_in_transaction_session_timeout: toSetting(deadlines.idleTransaction),
  lock_timeout: toSetting(deadlines.writeLock),
  statement_timeout: toSetting(deadlines.bulk),
};

/** Fails if Parley's statements would fail, run without their settings, or run in the wrong schema. */
export const checkDatabase = Effect.fnUntraced(function* (schema: string, isPooler = false) {
  const sql = yield* SqlClient.SqlClient;
  const names = isPooler ? Object.keys(roleSettings) : ["default_transaction_isolation"];
  const [row] = yield* sql.unsafe<DatabaseRow>(databaseRow, [schema, texts(names)]);
  const { current_schema, database, encoding, role, settings, usable, version } = row!;
  const isElsewhere = current_schema !== schema && (current_schema !== null || usable !== null);
  const missingSettings = [
    ...(isElsewhere ? [`search_path = ${quoteName(schema)}`] : []),
    ...names.flatMap((name) =>
      settings[name] === roleSettings[name] ? [] : [`${name} = '${roleSettings[name]}'`],
    ),
  ].map((setting) => `alter role ${quoteName(role)} in database ${database} set ${setting};`);
  const problems = [
    Number.parseInt(version) < 15 && `it is PostgreSQL ${version}, but Parley needs 15 or later`,
    encoding !== "UTF8" && `its encoding is ${encoding}, but Parley needs UTF8`,
    usable === false &&
      `the role "${role}" cannot use the schema "${schema}"; see "Database roles" in docs/operations.md`,
    missingSettings.length > 0 &&
      `its role lacks settings that Parley needs behind a pooler: run ${missingSettings.join(" ")} Then make the pooler open new connections (RECONNECT in PgBouncer's console)`,
  ];
  const problem = problems.find((text) => text !== false);
  if (problem !== undefined) return yield* cannotBeUsed(problem);
  return row!;
});

const slotsRow = `
select what, slots from (values
  ('The server', current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int
    - coalesce(current_setting('reserved_connections', true)::int, 0)),
  ('The database', (select datconnlimit from pg_database where datname = current_database())),
  ('The role ' || quote_ident(current_user), (select rolconnlimit from pg_roles where rolname = current_user))
) limits (what, slots) where slots >= 0 and slots < $1::int order by slots limit 1`;

/** Returns a warning if PostgreSQL allows fewer connections than two servers open, each up to `size`. */
export const slotWarnings = ({ query }: Session, size: number) =>
  query<{ what: string; slots: number }>("operator", slotsRow, [2 * size]).pipe(
    Effect.map((rows) =>
      rows.map(
        ({ slots, what }) =>
          `${what} allows ${slots} connections. A Parley server opens up to ${size}, and a rolling restart runs two servers.`,
      ),
    ),
  );
