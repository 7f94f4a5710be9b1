/**
 * The schema, as the steps that lead to it. A released step is never changed.
 */
import { foldVersion } from "@parley/core";
import { Effect } from "effect";
import { SqlClient, type SqlError } from "effect/sql";
import { firstOf, searchPathOf } from "./Granted.ts";
import { cannotBeUsed, type PostgresUnusable } from "./PostgresUnusable.ts";
import { againAfterClash } from "./Storage.ts";

/** The statements of every step, in order; they name no schema, the connection's search path does. */
export const migrations = {
  "0001_chatbots": `
    create table chatbot (
      id int generated always as identity primary key,
      workspace_name text not null,
      name text not null,
      description text not null,
      settings jsonb not null,
      unique (workspace_name, name)
    );
    create table api_key (
      id text primary key,
      chatbot_id int not null references chatbot,
      hash bytea not null,
      name text,
      scopes text[] not null,
      expires_at timestamptz(3),
      revoked_at timestamptz(3),
      created_at timestamptz(3) not null default clock_timestamp()
    );
    create index api_key_chatbot on api_key (chatbot_id);
    create table audit (
      id bigint generated always as identity primary key,
      time timestamptz(3) not null default clock_timestamp(),
      actor text not null,
      chatbot_id int not null,
      action text not null,
      detail text not null
    );`,

  "0002_chats": `
    create extension if not exists pg_trgm with schema public;
    create extension if not exists btree_gin with schema public;
    -- Another tenant of the database may have installed it elsewhere.
    select set_config('search_path', concat_ws(', ', quote_ident(current_schema()), quote_ident(nspname)), true)
    from pg_extension join pg_namespace on pg_namespace.oid = extnamespace where extname = 'pg_trgm';
    -- What a client reads as a JSON number must be exact.
    create sequence chat_id maxvalue 9007199254740991;
    create sequence entry_id maxvalue 9007199254740991;

    -- How many chats a chatbot has, the highest position given, when the last chat was made, and how
    -- often chats were erased. Its row is the lock that puts the creation of its chats in order.
    create table tally (
      chatbot_id int primary key references chatbot,
      chats bigint not null,
      positions bigint not null,
      last_time timestamptz(3) not null,
      erasures bigint not null default 0
    ) with (fillfactor = 50);

    -- How many of a block of positions were erased. Block n holds the positions above n * 4096.
    create table hole (
      chatbot_id int not null,
      block bigint not null,
      missing int not null,
      primary key (chatbot_id, block)
    );

    -- Positions are dense within a chatbot, erasures aside, so that a total is a counter and a page is a seek.
    create table chat (
      chatbot_id int not null,
      id bigint not null,
      position bigint not null,
      name text collate "C",
      user_ref text collate "C",
      folded_name text collate "C",
      create_time timestamptz(3) not null,
      entries bigint not null,
      last_entry_time timestamptz(3),
      -- Who answers, until when, or since when nobody does; and the processes that wait, in order.
      turn text,
      turn_until timestamptz,
      waiting text[] not null default '{}',
      primary key (chatbot_id, id)
    ) with (fillfactor = 85);
    create unique index chat_position on chat (chatbot_id, position);
    create index chat_name on chat (chatbot_id, name, position);
    create index chat_user_ref on chat (chatbot_id, user_ref, position);
    create index chat_folded_name on chat using gin (chatbot_id, folded_name gin_trgm_ops);

    create table entry (
      chatbot_id int not null,
      id bigint not null,
      chat_id bigint not null,
      position bigint not null,
      question text collate "C" not null,
      answer text collate "C" not null,
      moderation text collate "C" not null,
      flagged boolean not null,
      create_time timestamptz(3) not null,
      provider text,
      model text,
      prompt_tokens bigint,
      completion_tokens bigint,
      attempts int,
      latency_millis bigint,
      primary key (chatbot_id, id)
    );
    create unique index entry_position on entry (chatbot_id, chat_id, position);

    -- What became of requests with a retry key.
    create table request (
      chatbot_id int not null,
      key text collate "C" not null,
      fingerprint text not null,
      made_at timestamptz not null,
      turn text,
      turn_until timestamptz,
      chat_id bigint,
      entry_id bigint,
      primary key (chatbot_id, key)
    );
    create index request_made_at on request (chatbot_id, made_at);
    create index request_chat on request (chatbot_id, chat_id);

    create table fold (version int not null);
    insert into fold values (1);`,

  "0003_administration": `
    alter table api_key add column last_used_at timestamptz(3);
    update audit set action = 'revoke-key' where action = 'revoke';
    -- Append-only, also for the role that owns it.
    revoke update, delete, truncate on audit from current_user;`,

  "0004_hole_groups": `
    -- The same per 64 blocks: group n holds the blocks from n * 64 on.
    create table hole_group (
      chatbot_id int not null,
      block_group bigint not null,
      missing int not null,
      primary key (chatbot_id, block_group)
    );
    -- Not null without a default: an erasure that knows of no groups must fail.
    alter table hole add column block_group bigint;
    update hole set block_group = block / 64;
    alter table hole alter column block_group set not null;
    insert into hole_group (chatbot_id, block_group, missing)
    select chatbot_id, block_group, sum(missing) from hole group by chatbot_id, block_group;`,

  "0005_row_security": `
    -- Settings of a transaction tell whose rows it is about; after one that had a setting, it is ''.
    -- The policies bind nobody until row security is turned on.
    create policy tenant on tally using (chatbot_id = nullif(current_setting('parley.chatbot', true), '')::int);
    create policy tenant on hole using (chatbot_id = nullif(current_setting('parley.chatbot', true), '')::int);
    create policy tenant on hole_group using (chatbot_id = nullif(current_setting('parley.chatbot', true), '')::int);
    create policy tenant on chat using (chatbot_id = nullif(current_setting('parley.chatbot', true), '')::int);
    create policy tenant on entry using (chatbot_id = nullif(current_setting('parley.chatbot', true), '')::int);
    create policy tenant on request using (chatbot_id = nullif(current_setting('parley.chatbot', true), '')::int);

    create policy tenant on chatbot using (id = nullif(current_setting('parley.chatbot', true), '')::int);
    create policy operator on chatbot using (current_setting('parley.operator', true) = 'on');
    create policy key on chatbot for select using (exists (
      select from api_key where chatbot_id = chatbot.id and api_key.id = current_setting('parley.key', true)));
    create policy tenant on api_key using (chatbot_id = nullif(current_setting('parley.chatbot', true), '')::int);
    create policy operator on api_key using (current_setting('parley.operator', true) = 'on');
    create policy key on api_key for select using (id = current_setting('parley.key', true));
    create policy tenant on audit using (chatbot_id = nullif(current_setting('parley.chatbot', true), '')::int);
    create policy operator on audit using (current_setting('parley.operator', true) = 'on');

    -- They tell nothing of any chatbot.
    create policy everyone on fold for select using (true);
    create policy everyone on parley_migration for select using (true);

    -- What searches look at. It is read as its owner, whom no policy binds, so that their index serves.
    create view own_chat as
    select chatbot_id, id, position, name, user_ref, folded_name, create_time from chat
    where chatbot_id = nullif(current_setting('parley.chatbot', true), '')::int;`,

  "0006_spans": `
    -- For a span of 256 parts of so many positions: how many of its chats come before each part, and before
    -- its end. Span n holds the positions above n * 256 * part_size.
    create table span (
      chatbot_id int not null,
      part_size bigint not null,
      number bigint not null,
      chats_before bigint[] not null,
      primary key (chatbot_id, part_size, number),
      -- No level is above the third.
      check (part_size < 33554432 or number = 0)
      -- Rows of 2 kB: with less room an update would move its row to another page.
    ) with (fillfactor = 70);
    alter table span alter column chats_before set storage plain;
    create policy tenant on span using (chatbot_id = nullif(current_setting('parley.chatbot', true), '')::int);

    -- In the order of erasures. Those that ended before are counted; those that wait fail when their tables are gone.
    lock table hole, hole_group in share mode;
    insert into span (chatbot_id, part_size, number, chats_before)
    select tally.chatbot_id, 512, number, array(
      select coalesce(sum(512 - greatest(least(512, positions - first), 0) + taken)
        over (order by first rows between unbounded preceding and 1 preceding), 0)::bigint
      from generate_series(number * 131072, number * 131072 + 131072, 512) first, lateral (
        select count(*) as taken from chat
        where first < positions and chatbot_id = tally.chatbot_id and position > first and position <= first + 512
      ) counted
      order by first
    )
    from tally cross join generate_series(0, (positions - 1) / 131072) number
    where chats < positions;
    insert into span (chatbot_id, part_size, number, chats_before)
    select tally.chatbot_id, 131072, above.number, array(
      select coalesce(sum(coalesce(chats_before[257], 131072))
        over (order by part rows between unbounded preceding and 1 preceding), 0)::bigint
      from generate_series(above.number * 256, above.number * 256 + 256) part
      left join span on span.chatbot_id = tally.chatbot_id and part_size = 512 and span.number = part
      order by part
    )
    from tally cross join generate_series(0, (positions - 1) / 33554432) above (number)
    where chats < positions;
    insert into span (chatbot_id, part_size, number, chats_before)
    select tally.chatbot_id, 33554432, 0, array(
      select coalesce(sum(coalesce(chats_before[257], 33554432))
        over (order by part rows between unbounded preceding and 1 preceding), 0)::bigint
      from generate_series(0, 256) part
      left join span on span.chatbot_id = tally.chatbot_id and part_size = 131072 and span.number = part
      order by part
    )
    from tally
    where chats < positions;

    -- For servers of the version before that still run: their lists go on, their erasures fail.
    alter table hole_group rename to former_hole_group;
    alter table hole rename to former_hole;
    create view hole with (security_invoker = true) as
    select chatbot_id, number * 32 + n as block, (number * 32 + n) / 64 as block_group,
      (4096 - chats_before[n * 8 + 9] + chats_before[n * 8 + 1])::int as missing
    from span cross join generate_series(0, 31) n where part_size = 512;
    create view hole_group with (security_invoker = true) as
    select chatbot_id, number * 128 + n as block_group,
      (262144 - chats_before[n * 2 + 3] + chats_before[n * 2 + 1])::int as missing
    from span cross join generate_series(0, 127) n where part_size = 131072;
    -- Whoever was let in stays so.
    do $$ declare statement text; begin for statement in
      select format('grant %s on span to %s', string_agg(privilege_type, ', '), name)
        || format('; grant select on hole, hole_group to %s', name)
      from pg_class cross join aclexplode(relacl) cross join lateral (
        select case grantee when 0 then 'public' else quote_ident(pg_get_userbyid(grantee)) end as name
      ) named
      where pg_class.oid = 'former_hole'::regclass and grantee <> relowner group by name
      union all
      select format('create policy unbound on span to %s using (true) with check (true)',
        string_agg(quote_ident(rolname), ', '))
      from pg_policy join pg_roles on pg_roles.oid = any (polroles)
      where polrelid = 'former_hole'::regclass and polname = 'unbound' group by polname
      union all
      select 'alter table span enable row level security' from pg_class
      where pg_class.oid = 'former_hole'::regclass and relrowsecurity
    loop execute statement; end loop; end $$;
    drop table former_hole, former_hole_group;`,

  "0007_milestones": `
    -- In the order of a column of texts: positions of some chats and how many come before each; how many of the
    -- chats have a text. True for those up to the position that was reached, after so many erasures.
    create table milestone (
      chatbot_id int not null,
      column_name text not null,
      spacing bigint not null,
      reached bigint not null,
      erasures bigint not null,
      texts bigint not null,
      positions bigint[] not null,
      ranks bigint[] not null,
      primary key (chatbot_id, column_name)
    );
    create policy tenant on milestone using (chatbot_id = nullif(current_setting('parley.chatbot', true), '')::int);
    -- Whoever owns the tables or was let in stays so, whoever runs this.
    do $$ declare statement text; begin for statement in
      select format('alter table %I owner to %I', made.relname, pg_get_userbyid(chat.relowner))
      from pg_class chat join pg_class made on made.relnamespace = chat.relnamespace
      where chat.oid = 'chat'::regclass and made.relname in ('span', 'hole', 'hole_group', 'milestone')
        and made.relowner <> chat.relowner
      union all
      select format('grant %s on milestone to %s', string_agg(privilege_type, ', '),
        case grantee when 0 then 'public' else quote_ident(pg_get_userbyid(grantee)) end)
      from pg_class cross join aclexplode(relacl)
      where pg_class.oid = 'chat'::regclass and grantee <> relowner group by grantee
      union all
      select format('create policy unbound on milestone to %s using (true) with check (true)',
        string_agg(quote_ident(rolname), ', '))
      from pg_policy join pg_roles on pg_roles.oid = any (polroles)
      where polrelid = 'chat'::regclass and polname = 'unbound' group by polname
      union all
      select 'alter table milestone enable row level security' from pg_class
      where pg_class.oid = 'chat'::regclass and relrowsecurity
    loop execute statement; end loop; end $$;`,

  "0008_request_statistics": `
    -- It grows from nothing within a day, so that what ANALYZE found is soon wrong: plans go by its size alone.
    alter table request
      alter column chatbot_id set statistics 0,
      alter column key set statistics 0,
      alter column fingerprint set statistics 0,
      alter column made_at set statistics 0,
      alter column turn set statistics 0,
      alter column turn_until set statistics 0,
      alter column chat_id set statistics 0,
      alter column entry_id set statistics 0;
    -- What was gathered goes with the types of the columns, even if they stay the same.
    drop policy tenant on request;
    alter table request
      alter column chatbot_id type int,
      alter column key type text collate "C",
      alter column fingerprint type text,
      alter column made_at type timestamptz,
      alter column turn type text,
      alter column turn_until type timestamptz,
      alter column chat_id type bigint,
      alter column entry_id type bigint;
    create policy tenant on request using (chatbot_id = nullif(current_setting('parley.chatbot', true), '')::int);`,
} as const;

type Step = keyof typeof migrations;

/** Every statement of ours ends a line, and nothing else ends one with a semicolon. */
const statementsOf = (text: string): ReadonlyArray<string> =>
  text
    .replace(/^ {4}/gm, "")
    .split(/;$/m)
    .map((statement) => statement.trim())
    .filter((statement) => statement !== "");

/** A number that nothing else in a database is likely to lock. */
export const migrationLock = 7_275_395_391;

const table = "parley_migration";

/** The tables, views and sequences that the steps make. */
const relations: ReadonlyArray<string> = [
  table,
  ...Object.values(migrations).flatMap((step) =>
    [...step.matchAll(/^ *create (?:table|view|sequence) (\w+)/gm)].map(([, name]) => name!),
  ),
];

/** SQL that is true for what is Parley's: others may have tables in the same schema. */
export const isOurs = `relnamespace = (select oid from pg_namespace where nspname = current_schema())
    and relname in (${relations.map((name) => `'${name}'`).join(", ")})`;

/** Number and name of a step, as its row holds them. */
const rowOf = (step: Step) => {
  const [, id, name] = /^(\d+)_(.*)$/.exec(step)!;
  return { id: Number(id), name: name! };
};

/** The steps that the schema lacks, in order. */
const pending: Effect.Effect<
  ReadonlyArray<Step>,
  SqlError.SqlError,
  SqlClient.SqlClient
> = Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient;
  const steps = Object.keys(migrations) as Array<Step>;
  // A name that was looked up before another server made the table would stay unknown: to_regclass reads
  // no table, and only that brings news in the middle of a transaction.
  const [found] = yield* sql.unsafe(
    "select from pg_tables where schemaname = current_schema() and tablename = $1",
    [table],
  );
  if (found === undefined) return steps;
  const [newest] = yield* sql.unsafe<{ readonly id: number }>(
    `select coalesce(max(migration_id), 0) as id from ${table}`,
  );
  return steps.filter((step) => rowOf(step).id > newest!.id);
});

/** What comes before anything else: servers that start together wait for each other. */
const preamble = [
  "set local statement_timeout = 0",
  `select pg_advisory_xact_lock(${migrationLock})`,
];

const firstOwner =
  "select pg_get_userbyid(relowner) as owner from pg_class where oid = 'chatbot'::regclass";

/** Whoever ran them, all that the steps made belongs to whom the first table does; the audit is append-only for it, too. */
const settleOwner = `do $$ declare statement text; begin for statement in
  select format('alter %s %I owner to %I',
    case relkind when 'v' then 'view' when 'S' then 'sequence' else 'table' end, relname, first.owner)
  from pg_class cross join (${firstOwner}) first
  where ${isOurs} and pg_get_userbyid(relowner) <> first.owner
  union all
  select format('revoke update, delete, truncate on audit from %I', owner) from (${firstOwner}) first
loop execute statement; end loop; end $$`;

/** Whether the audit's owner, as whom this runs, could change it: a dump may have been restored without privileges. */
const auditIsOpen: Effect.Effect<boolean, SqlError.SqlError, SqlClient.SqlClient> =
  SqlClient.SqlClient.use((sql) =>
    Effect.map(
      sql.unsafe<{ readonly open: boolean }>(`
select exists (
  select from aclexplode(coalesce(relacl, acldefault('r', relowner)))
  where grantee = relowner and privilege_type in ('UPDATE', 'DELETE', 'TRUNCATE')
) and pg_has_role(relowner, 'usage') as open
from pg_class where oid = 'audit'::regclass`),
      ([audit]) => audit!.open,
    ),
  );

/** The statements that bring the schema up to date, after {@link preamble}; none when it is. */
const plan: Effect.Effect<
  ReadonlyArray<string>,
  SqlError.SqlError,
  SqlClient.SqlClient
> = Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient;
  const steps = yield* pending;
  if (steps.length === 0 && !(yield* auditIsOpen)) return [];
  const [place] = yield* sql.unsafe<{ readonly searchPath: string; readonly found: boolean }>(
    `select current_setting('search_path') as "searchPath", current_schema() is not null as found`,
  );
  const { found, searchPath } = place!;
  const schema = searchPathOf(firstOf(searchPath)!);
  return [
    `set local search_path = ${schema}`,
    ...(found ? [] : [`create schema ${schema}`]),
    `create table if not exists ${table} (
  migration_id integer primary key,
  created_at timestamp with time zone not null default now(),
  name text not null
)`,
    ...steps.flatMap((step) => {
      const { id, name } = rowOf(step);
      return [
        ...statementsOf(`-- ${step}\n${migrations[step]}`),
        `insert into ${table} (migration_id, name) values (${id}, '${name}')`,
      ];
    }),
    settleOwner,
  ];
});

/** One transaction of the statements, as a text. Each sees what others did before, whatever the default is. */
export const scriptOf = (statements: ReadonlyArray<string>): string =>
  ["begin isolation level read committed", ...statements, "commit"]
    .map((statement) => `${statement};\n`)
    .join("\n");

/** The SQL that {@link migrate} would run; empty when the schema is up to date. */
export const pendingSql: Effect.Effect<string, SqlError.SqlError, SqlClient.SqlClient> = Effect.map(
  plan,
  (statements) => (statements.length === 0 ? "" : scriptOf([...preamble, ...statements])),
);

/** Fails when this software cannot serve the schema, which is up to date. */
export const schemaMustFit: Effect.Effect<
  void,
  PostgresUnusable | SqlError.SqlError,
  SqlClient.SqlClient
> = Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient;
  const [found] = yield* sql.unsafe<{ readonly newest: number; readonly fold: number }>(
    `select (select max(migration_id) from ${table}) as newest, (select version from fold) as fold`,
  );
  const { fold, newest } = found!;
  if (newest > Object.keys(migrations).length) {
    return yield* cannotBeUsed(
      `its schema has step ${newest}, which this version of Parley does not know`,
    );
  }
  if (fold !== foldVersion) {
    return yield* cannotBeUsed(
      `its names are folded by version ${fold}, and this Parley folds by version ${foldVersion}`,
    );
  }
});

/** Brings the schema up to date. Servers that start together wait for each other. */
export const migrate: Effect.Effect<void, SqlError.SqlError, SqlClient.SqlClient> = Effect.gen(
  function* () {
    const sql = yield* SqlClient.SqlClient;
    const run = (statements: ReadonlyArray<string>) =>
      Effect.forEach(statements, (statement) => sql.unsafe(statement), { discard: true });
    // A role that may not create anything can serve a schema that is up to date.
    if ((yield* plan).length === 0) return;
    // What is lacking is looked up again, because another server may have done it meanwhile.
    // What serves meanwhile locks the tables in another order.
    yield* againAfterClash(
      sql.withTransaction(Effect.andThen(run(preamble), Effect.flatMap(plan, run))),
    );
  },
);
