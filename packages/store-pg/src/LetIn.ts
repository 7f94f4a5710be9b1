/**
 * A server may connect as another role than the owner of the tables, who lets it in: either row-level
 * security binds it to one chatbot at a time, or it is let into all of them. Row security is turned on with
 * the first role that is bound. From then on a role stays what it was when it was let in, so that one
 * server cannot change under another what both rely on.
 */
import { Effect } from "effect";
import { SqlClient, type SqlError } from "effect/sql";
import { isOurs, lockMigrations as preamble, scriptOf } from "./migrations/Migrator.ts";
import { tenantTables } from "./migrations/0001_initial.ts";
import { againAfterClash } from "./Storage.ts";

/** The statements by which role `$1` gets what it lacks; it is bound if `$2`. */
const lacking = `
with unbound as (
  select polrelid, polroles from pg_policy where polname = 'unbound'
), role as (
  select pg_roles.oid, rolname, not (rolsuper or rolbypassrls or pg_has_role(pg_roles.oid, relowner, 'usage')) as bindable,
    has_table_privilege(pg_roles.oid, pg_class.oid, 'select') as known,
    exists (select from unbound where polrelid = pg_class.oid and pg_roles.oid = any (polroles)) as is_unbound
  from pg_roles, pg_class where rolname = $1 and pg_class.oid = 'chat'::regclass
), object as (
  select oid, relname, relkind, case
    when relkind = 'S' then array['usage', 'select', 'update']
    when relkind = 'v' or relname in ('fold', 'parley_schema') then array['select']
    when relname = 'audit' then array['select', 'insert']
    -- What ends an erasure needs it; before version 17 only the owner could.
    when current_setting('server_version_num')::int < 170000 then array['select', 'insert', 'update', 'delete']
    else array['select', 'insert', 'update', 'delete', 'maintain'] end as privileges
  from pg_class where relkind in ('r', 'v', 'S') and ${isOurs}
)
select format('grant usage on schema %I to %I', current_schema(), rolname) as statement from role
where not has_schema_privilege(oid, current_schema(), 'usage')
union all
select format('grant %s on %s %I to %I', string_agg(privilege, ', '),
  case relkind when 'S' then 'sequence' else 'table' end, relname, rolname)
from role cross join object cross join unnest(privileges) privilege
where not case relkind when 'S' then has_sequence_privilege(role.oid, object.oid, privilege)
  else has_table_privilege(role.oid, object.oid, privilege) end
group by relkind, relname, rolname
union all
select case when polroles is null
  then format('create policy unbound on %I to %I using (true) with check (true)', relname, rolname)
  else format('alter policy unbound on %I to %s, %I', relname,
    (select string_agg(quote_ident(rolname), ', ') from pg_roles where oid = any (polroles)), rolname) end
from role cross join object left join unbound on polrelid = object.oid
where not $2::bool and bindable and (is_unbound or not known)
  and relname = any ('{${tenantTables.join()}}') and role.oid <> all (coalesce(polroles, '{}'))`;

const lettingIn = Effect.fnUntraced(function* (role: string, bound: boolean) {
  const sql = yield* SqlClient.SqlClient;
  const rows = yield* sql.unsafe<{ readonly statement: string }>(lacking, [role, bound]);
  return rows.map(({ statement }) => statement);
});

/** Lets a role in, on a connection of the owner; does nothing when it is. */
export const letIn = (
  role: string,
  bound: boolean,
): Effect.Effect<void, SqlError.SqlError, SqlClient.SqlClient> =>
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient;
    if ((yield* lettingIn(role, bound)).length === 0) return;
    // What serves meanwhile locks the tables in another order.
    yield* againAfterClash(
      sql.withTransaction(
        Effect.gen(function* () {
          yield* sql.unsafe(preamble);
          for (const statement of yield* lettingIn(role, bound)) yield* sql.unsafe(statement);
        }),
      ),
    );
  });

/** The SQL that {@link letIn} would run; empty when the role is in. */
export const letInSql = (
  role: string,
  bound: boolean,
): Effect.Effect<string, SqlError.SqlError, SqlClient.SqlClient> =>
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient;
    const statements = yield* lettingIn(role, bound);
    if (statements.length === 0) return "";
    const [setting] = yield* sql.unsafe<{ readonly search_path: string }>("show search_path");
    return scriptOf([preamble, `set local search_path = ${setting!.search_path}`, ...statements]);
  });
