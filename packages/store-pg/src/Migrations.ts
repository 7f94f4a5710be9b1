/**
 * The schema, as the steps that lead to it. A released step is never changed.
 */
import { foldVersion } from "@parley/core";
import { Effect } from "effect";
import { Migrator, SqlClient, type SqlError } from "effect/sql";

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
} as const;

const run = (text: string) =>
  Effect.flatMap(SqlClient.SqlClient, (sql) =>
    Effect.forEach(statementsOf(text), (statement) => sql.unsafe(statement), { discard: true }),
  );

/** No statement of ours holds a semicolon inside; comments may. */
const statementsOf = (text: string): ReadonlyArray<string> =>
  text
    .replace(/^ *--.*$/gm, "")
    .split(";")
    .map((statement) => statement.trim())
    .filter((statement) => statement !== "");

/** A number that nothing else in a database is likely to lock. */
const migrationLock = 7_275_395_391;

const table = "parley_migration";

/** The names of the steps that the schema lacks. */
export const pending: Effect.Effect<
  ReadonlyArray<keyof typeof migrations>,
  SqlError.SqlError,
  SqlClient.SqlClient
> = Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient;
  const names = Object.keys(migrations) as Array<keyof typeof migrations>;
  const [found] = yield* sql.unsafe("select where to_regclass($1) is not null", [table]);
  if (found === undefined) return names;
  const [newest] = yield* sql.unsafe<{ readonly id: number }>(
    `select coalesce(max(migration_id), 0) as id from ${table}`,
  );
  return names.filter((name) => Number.parseInt(name, 10) > newest!.id);
});

/** Why this software cannot serve the schema, which is up to date; `null` when it can. */
export const misfit: Effect.Effect<string | null, SqlError.SqlError, SqlClient.SqlClient> =
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient;
    const [found] = yield* sql.unsafe<{ readonly newest: number; readonly fold: number }>(
      `select (select max(migration_id) from ${table}) as newest, (select version from fold) as fold`,
    );
    const { fold, newest } = found!;
    if (newest > Object.keys(migrations).length) {
      return `its schema has step ${newest}, which this version of Parley does not know`;
    }
    return fold === foldVersion
      ? null
      : `its names are folded by version ${fold}, and this Parley folds by version ${foldVersion}`;
  });

/** Brings the schema up to date. Servers that start together wait for each other. */
export const migrate: Effect.Effect<
  void,
  SqlError.SqlError | Migrator.MigrationError,
  SqlClient.SqlClient
> = Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient;
  // A role that may not create anything can serve a schema that is up to date.
  if ((yield* pending).length === 0) return;
  yield* sql.withTransaction(
    Effect.gen(function* () {
      yield* sql.unsafe("set local statement_timeout = 0");
      yield* sql.unsafe("select pg_advisory_xact_lock($1::int8)", [migrationLock]);
      const [setting] = yield* sql.unsafe<{ readonly search_path: string }>("show search_path");
      yield* sql.unsafe(`create schema if not exists ${setting!.search_path}`);
      yield* Migrator.make({})({
        loader: Migrator.fromRecord(
          Object.fromEntries(Object.entries(migrations).map(([name, text]) => [name, run(text)])),
        ),
        table,
      });
    }),
  );
});
