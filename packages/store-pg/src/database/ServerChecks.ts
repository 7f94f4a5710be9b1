/**
 * What a database, and the role of a server in it, must be before the server serves.
 */
import { Effect } from "effect";
import { SqlClient, type SqlError } from "effect/sql";
import { isOurs } from "../migrations/Migrator.ts";
import { cannotBeUsed, PostgresUnusable } from "../PostgresUnusable.ts";
import type { Session } from "./TenantSession.ts";

interface Server {
  readonly searchPath: string;
  /** Where unqualified names lead; `null` when that is nowhere yet. */
  readonly currentSchema: string | null;
  readonly isolation: string;
  readonly encoding: string;
  readonly version: string;
  readonly number: number;
  readonly role: string;
  /** Whether the role may use the schema; `null` if there is none. */
  readonly open: boolean | null;
}

const server = `
select current_setting('search_path') as "searchPath", current_schema() as "currentSchema",
  current_setting('default_transaction_isolation') as isolation, current_setting('server_encoding') as encoding,
  current_setting('server_version') as version, current_setting('server_version_num')::int as number,
  current_user as role, (select has_schema_privilege(oid, 'usage') from pg_namespace where nspname = $1) as open`;

/**
 * The connection must have got what it asked for, which a pooler may keep to itself; texts of any language must fit; and
 * the statements need what PostgreSQL 15 brought.
 */
export const databaseMustFit = Effect.fnUntraced(function* (schema: string) {
  // PostgreSQL cuts off what is longer, without a word, and these are names of its own.
  if (new TextEncoder().encode(schema).length > 63 || /^(pg_|\$user$)/.test(schema)) {
    return yield* cannotBeUsed(
      `no schema can be named "${schema}" (PARLEY_SCHEMA): at most 63 bytes, not "$user", and not "pg_" and more`,
    );
  }
  const sql = yield* SqlClient.SqlClient;
  const [found] = yield* sql.unsafe<Server>(server, [schema]);
  const why = misfitOf(found!, schema);
  if (why !== null) return yield* new PostgresUnusable({ message: why });
  return { encoding: found!.encoding, version: found!.version };
});

const misfitOf = (
  { currentSchema, encoding, isolation, number, open, role, searchPath, version }: Server,
  schema: string,
): string | null => {
  const asked = (what: string) =>
    `The database cannot be used: a connection that asks for ${what}: behind a connection pooler it must be set for the role.`;
  if (!isAskedFor(searchPath, schema)) {
    return asked(`the search_path "${schema}" gets ${searchPath || "none"}`);
  }
  if (isolation !== "read committed") {
    return asked(`the default_transaction_isolation "read committed" gets ${isolation}`);
  }
  if (open === false) {
    return `The database cannot be used: the role "${role}" may not use the schema "${schema}"; see "Roles of the database" in docs/operations.md.`;
  }
  if (currentSchema !== null && currentSchema !== schema) {
    return `The database cannot be used: there is no schema "${schema}", and tables would be made in "${currentSchema}", which the search_path names next: make the schema first.`;
  }
  if (encoding !== "UTF8") {
    return `The database's encoding is ${encoding}, but Parley needs one with UTF8.`;
  }
  return number < 150_000
    ? `The database is PostgreSQL ${version}, but Parley needs 15 or later.`
    : null;
};

/** A pooler may have set it for the role, and written it its own way, or with more behind. */
const isAskedFor = (searchPath: string, schema: string) => {
  const [, quoted, plain] = /^\s*(?:"((?:[^"]|"")*)"|([^",\s]+))/.exec(searchPath) ?? [];
  return (quoted?.replaceAll('""', '"') ?? plain?.toLowerCase()) === schema;
};

interface Role {
  readonly name: string;
  /** Whether row security binds the role. */
  readonly bound: boolean;
  /** A table or view that the role may not read, if there is one. */
  readonly unreadable: string | null;
}

const role = `
select current_user as name, row_security_active('chat') as bound, (
  select min(relname) from pg_class
  where relkind in ('r', 'v') and ${isOurs} and not has_table_privilege(oid, 'select')
) as unreadable`;

/** Fails when a server must not serve as the session's role: one that row security hides all from would serve empty lists. */
export const roleMustFit = (
  session: Session,
  { rowSecurity }: { readonly rowSecurity: boolean },
): Effect.Effect<void, PostgresUnusable | SqlError.SqlError> =>
  Effect.gen(function* () {
    const [found] = yield* session.query<Role>("operator", role);
    const { bound, name, unreadable } = found!;
    if (unreadable !== null) {
      return yield* cannotBeUsed(
        `the role "${name}" may not read "${unreadable}"; see "Roles of the database" in docs/operations.md`,
      );
    }
    if (bound === rowSecurity) return;
    return yield* cannotBeUsed(
      bound
        ? `row security binds the role "${name}": set PARLEY_ROW_SECURITY=true, or connect as the owner of the tables`
        : `row security does not bind the role "${name}", as it is superuser, owns the tables or bypasses it: connect as another role, or unset PARLEY_ROW_SECURITY`,
    );
  });

/** What keeps a server from writing, if anything does. */
export interface Writing {
  /** Whether the database refuses all writes, as a standby does, or for roles whose transactions only read by default. */
  readonly readOnly: boolean;
  /** A table or sequence that the role may not write to as a server does, if there is one. */
  readonly closed: string | null;
}

/** Commands that only read need none of it. */
export const writing = (session: Session): Effect.Effect<Writing, SqlError.SqlError> =>
  Effect.map(session.query<Writing>("operator", writingStatement), ([found]) => found!);

const writingStatement = `
select current_setting('transaction_read_only')::bool as "readOnly", (
    select min(relname) from pg_class cross join unnest(case
      when relkind = 'S' then array['usage', 'update']
      when relname in ('chat', 'idempotency_key') then array['insert', 'update', 'delete']
      when relname = 'entry' then array['insert', 'delete']
      when relname = 'audit' then array['insert']
      else array['insert', 'update'] end) privilege
    where relkind in ('r', 'S') and relname not in ('fold', 'parley_schema') and ${isOurs}
      and not case relkind when 'S' then has_sequence_privilege(pg_class.oid, privilege)
        else has_table_privilege(pg_class.oid, privilege) end
  ) as closed`;
