/**
 * What a database, and the role of a server in it, must be before the server serves.
 */
import { Effect } from "effect";
import { SqlClient, type SqlError } from "effect/sql";
import { granted, mustBeGranted, type Granted } from "./Granted.ts";
import { tenantTables } from "./migrations/0001_initial.ts";
import { isOurs } from "./migrations/Migrator.ts";
import { cannotBeUsed, PostgresUnusable } from "./PostgresUnusable.ts";
import type { Session } from "./Session.ts";

const asOwner = "give the server the owner's connection for migrations, by which it is let in";

/**
 * The connection must have got what it asked for, texts of any language must fit, and the statements need what
 * PostgreSQL 15 brought.
 */
export const databaseMustFit = Effect.fnUntraced(function* (schema: string) {
  // PostgreSQL cuts off what is longer, without a word, and these are names of its own.
  if (new TextEncoder().encode(schema).length > 63 || /^(pg_|\$user$)/.test(schema)) {
    return yield* cannotBeUsed(
      `no schema can be named "${schema}": at most 63 bytes, not "$user", and not "pg_" and more`,
    );
  }
  const sql = yield* SqlClient.SqlClient;
  const [server] = yield* sql.unsafe<
    Granted & {
      readonly encoding: string;
      readonly version: string;
      readonly number: number;
    }
  >(
    `select current_setting('server_encoding') as encoding, current_setting('server_version') as version,
      current_setting('server_version_num')::int as number, ${granted}`,
  );
  const { encoding, number, version } = server!;
  yield* mustBeGranted(server!, schema);
  yield* schemaMustBeOpen(schema);
  const { currentSchema } = server!;
  if (currentSchema !== null && currentSchema !== schema) {
    return yield* cannotBeUsed(
      `there is no schema "${schema}", and tables would be made in "${currentSchema}", which the search_path names next: make the schema first`,
    );
  }
  if (encoding !== "UTF8") {
    return yield* new PostgresUnusable({
      message: `The database's encoding is ${encoding}, but Parley needs one with UTF8.`,
    });
  }
  if (number < 150_000) {
    return yield* new PostgresUnusable({
      message: `The database is PostgreSQL ${Math.floor(number / 10_000)}, but Parley needs 15 or later.`,
    });
  }
  return { encoding, version };
});

/** Fails when there is the schema, and the connection's role cannot even look at it. */
const schemaMustBeOpen = (
  name: string,
): Effect.Effect<void, PostgresUnusable | SqlError.SqlError, SqlClient.SqlClient> =>
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient;
    const [schema] = yield* sql.unsafe<{ readonly role: string; readonly open: boolean }>(
      `select current_user as role, has_schema_privilege(oid, 'usage') as open from pg_namespace
      where nspname = $1`,
      [name],
    );
    if (schema?.open === false) {
      return yield* cannotBeUsed(`the role "${schema.role}" may not use the schema: ${asOwner}`);
    }
  });

interface Standing extends Granted {
  readonly name: string;
  /** How many rows an index of words gives at most, `0` for all. */
  readonly fuzzy: string;
  readonly super: boolean;
  readonly bypasses: boolean;
  readonly owns: boolean;
  /** A table or view that the role may not read, if there is one. */
  readonly closed: string | null;
  /** A table in which row security does not bind the role, if there is one. */
  readonly free: string | null;
  /** A table of which a policy lets the role see every row, if there is one. */
  readonly unbound: string | null;
  /** A table of which the role sees the rows of a statement's subject alone, if there is one. */
  readonly bound: string | null;
}

const standing = `
select rolname as name, ${granted}, current_setting('gin_fuzzy_search_limit') as fuzzy, rolsuper as super, rolbypassrls as bypasses, owns, free, unbound, bound, (
    select min(relname) from pg_class
    where relkind in ('r', 'p', 'v') and ${isOurs} and not has_table_privilege(pg_class.oid, 'select')
  ) as closed
from pg_roles cross join (
  select bool_or(pg_has_role(relowner, 'usage')) as owns,
    min(relname) filter (where not active) as free,
    min(relname) filter (where let_in) as unbound,
    min(relname) filter (where active and not let_in) as bound
  from pg_class cross join lateral (
    select row_security_active(pg_class.oid) as active, exists (
      select from pg_policy cross join unnest(polroles) role
      where polrelid = pg_class.oid and polname = 'unbound' and pg_has_role(role, 'usage')
    ) as let_in
  ) seen
  where relname = any ('{${tenantTables.join()}}') and ${isOurs}
) tables
where rolname = current_user`;

/** Fails when a server must not serve as the session's role. */
export const roleMustFit = (
  session: Session,
  wanted: { readonly schema: string; readonly rowSecurity: boolean },
): Effect.Effect<void, PostgresUnusable | SqlError.SqlError> =>
  Effect.gen(function* () {
    const [role] = yield* session.query<Standing>("operator", standing);
    yield* mustBeGranted(role!, wanted.schema);
    const why = misfitOf(role!, wanted);
    if (why !== null) return yield* cannotBeUsed(why);
  });

const misfitOf = (
  role: Standing,
  wanted: { readonly schema: string; readonly rowSecurity: boolean },
): string | null => {
  const { bound, closed, currentSchema, free, fuzzy, name } = role;
  if (currentSchema !== wanted.schema) {
    return `the role "${name}" may not use the schema "${wanted.schema}": ${asOwner}`;
  }
  if (fuzzy !== "0") {
    return `searches would leave chats out, because gin_fuzzy_search_limit is ${fuzzy} for the role "${name}"`;
  }
  if (closed !== null) {
    return `the role "${name}" may not read the table "${closed}": ${asOwner}`;
  }
  if (!wanted.rowSecurity) {
    return bound === null
      ? null
      : `row security binds the role "${name}" in the table "${bound}": turn row security on for this server, too, or let it connect as another role`;
  }
  const freedom = freedomOf(role);
  if (freedom !== null) {
    return `row security does not bind the role "${name}", which ${freedom}: let the server connect as another role, and give it the owner's connection for migrations`;
  }
  return free === null
    ? null
    : `row security is off in the table "${free}": give the server the owner's connection for migrations, which turns it on`;
};

/** What keeps row security from binding the role. */
const freedomOf = (role: Standing): string | null =>
  role.super
    ? "is a superuser"
    : role.bypasses
      ? "bypasses it"
      : role.owns
        ? "owns the tables"
        : role.unbound !== null
          ? "was let into all chatbots by a server without it"
          : null;

/** What keeps a server from writing, if anything does. */
export interface Writing {
  /** Whether the database refuses all writes, as a standby does, or for roles whose transactions only read by default. */
  readonly readOnly: boolean;
  /** A table or sequence that the role may not write to as a server does, if there is one. */
  readonly closed: string | null;
}

/** What commands that only read can do without. */
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
    where relkind in ('r', 'p', 'S') and relname not in ('fold', 'parley_schema') and ${isOurs}
      and not case relkind when 'S' then has_sequence_privilege(pg_class.oid, privilege)
        else has_table_privilege(pg_class.oid, privilege) end
  ) as closed`;
