/**
 * The schema. A released migration never changes. Later ones only add, so that the previous version can serve during a
 * rolling upgrade. The statements do not name the schema: the search path of the connection does.
 */

const keyColumns =
  "chatbot_id key fingerprint made_at turn turn_until chat_id entry_id stopped".split(" ");

export const initial = `
create table parley_schema (migration_id int primary key, name text not null, created_at timestamptz not null default now());

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
  chatbot_id int not null references chatbot on delete cascade,
  hash bytea not null,
  name text,
  scopes text[] not null,
  expires_at timestamptz(3),
  -- Contains the secret that signs visitor tokens, which must stay secret.
  bounds jsonb not null,
  revoked_at timestamptz(3),
  created_at timestamptz(3) not null default clock_timestamp(),
  last_used_at timestamptz(3)
);
create index api_key_chatbot on api_key (chatbot_id);
create table audit (
  id bigint generated always as identity primary key,
  time timestamptz(3) not null default clock_timestamp(),
  actor text not null,
  -- No foreign key, because a chatbot's lines outlive the chatbot.
  chatbot_id int not null,
  action text not null,
  detail text not null
);
-- Prevents mistakes, not attacks: the owner can grant itself these privileges again.
revoke update, delete, truncate on audit from current_user;

create extension if not exists pg_trgm with schema public;
create extension if not exists btree_gin with schema public;
-- Another application may have installed pg_trgm in a different schema.
select set_config('search_path', concat_ws(', ', quote_ident(current_schema()), quote_ident(nspname)), true)
from pg_extension join pg_namespace on pg_namespace.oid = extnamespace where extname = 'pg_trgm';
-- Clients read ids as JSON numbers, which must be exact.
create sequence chat_id maxvalue 9007199254740991;
create sequence entry_id maxvalue 9007199254740991;

-- A chatbot's number of chats, the highest position ever used, and when its newest chat was created. Creations lock the
-- row, so they run one after the other.
create table chat_counter (
  chatbot_id int primary key references chatbot on delete cascade,
  chats bigint not null,
  positions bigint not null,
  last_time timestamptz(3) not null
) with (fillfactor = 50);

-- Apart from erasures, a chatbot's positions have no gaps, so a total is a counter, and a page needs one index seek.
create table chat (
  -- No foreign key, because checking it would cost each creation a look-up. A trigger deletes a deleted chatbot's chats.
  chatbot_id int not null,
  id bigint not null,
  position bigint not null,
  name text collate "C",
  user_ref text collate "C",
  folded_name text collate "C",
  create_time timestamptz(3) not null,
  entries bigint not null,
  last_entry_time timestamptz(3),
  -- The id of the turn in progress, if any.
  turn text,
  -- When the lease of that turn ends or, without a turn, when the latest one ended.
  turn_until timestamptz,
  -- The instances that are waiting for a turn, in order.
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
  -- The id of the API key that asked.
  key_id text,
  -- A JSON object. Text keeps the order of its names.
  metadata text,
  rating text,
  comment text,
  request_id text,
  primary key (chatbot_id, id)
);
create unique index entry_position on entry (chatbot_id, chat_id, position);

-- For a range of 256 parts of positions: how many of the range's chats are before each part, and how many it has in
-- all. Range n begins above position n * 256 * part_size. A range without erased chats has no row.
create table position_gap (
  chatbot_id int not null references chatbot on delete cascade,
  part_size bigint not null,
  number bigint not null,
  chats_before bigint[] not null,
  primary key (chatbot_id, part_size, number),
  -- The widest level has a single range.
  check (part_size < 33554432 or number = 0)
  -- A row has 2 kB: with less free space, an update would move its row to another page.
) with (fillfactor = 70);
alter table position_gap alter column chats_before set storage plain;

-- The tokens that an API key's asks cost on a UTC day. key_id has no foreign key: an embedder's own keys have no row.
create table key_spending (
  chatbot_id int not null references chatbot on delete cascade,
  key_id text not null,
  day date not null,
  tokens bigint not null,
  primary key (chatbot_id, key_id, day)
) with (fillfactor = 50);

-- The chats that the visitors of an API key have erased on a UTC day. The row outlives the chatbot, as the audit log does.
create table visitor_erasure (
  chatbot_id int not null,
  key_id text not null,
  day date not null,
  time timestamptz(3) not null,
  chats int not null,
  primary key (chatbot_id, key_id, day)
);

-- What erased answers cost: no texts, and no users.
create table erased_usage (
  chatbot_id int not null references chatbot on delete cascade,
  day date not null,
  key_id text,
  provider text,
  model text,
  answers bigint not null,
  attempts bigint not null,
  prompt_tokens bigint not null,
  completion_tokens bigint not null,
  unique nulls not distinct (chatbot_id, day, key_id, provider, model)
);

-- See rows/IdempotencyKeys.ts.
create table idempotency_key (
  chatbot_id int not null references chatbot on delete cascade,
  key text collate "C" not null,
  fingerprint text not null,
  made_at timestamptz not null,
  turn text,
  turn_until timestamptz,
  chat_id bigint,
  entry_id bigint,
  stopped boolean not null default false,
  primary key (chatbot_id, key)
);
create index idempotency_key_made_at on idempotency_key (chatbot_id, made_at);
create index idempotency_key_chat on idempotency_key (chatbot_id, chat_id);
-- The table grows from nothing within a day, so statistics would soon be wrong: plans depend only on its size.
alter table idempotency_key ${keyColumns.map((column) => `alter column ${column} set statistics 0`).join()};

-- Chats are deleted after the counter's row, which creations lock, and entries after their chats, which appends lock.
create function delete_chats() returns trigger language plpgsql security definer set search_path from current as $$
begin
  delete from chat where chatbot_id = old.id; delete from entry where chatbot_id = old.id; return null; end $$;
create trigger delete_chats after delete on chatbot for each row execute function delete_chats();

-- Identifies the database that last gave out ids. In a database that was restored from its dump or replicated from it,
-- another transaction wrote the row. One that continues its files or its write-ahead log has another identity. The
-- sequences of either may not know all ids that were given out. The primary key lets a publication replicate updates.
create table database_identity (id int primary key, identity text not null, written_by xid not null);
create function present_identity() returns text language plpgsql as $$
declare
  copy text := (select oid from pg_database where datname = current_database());
begin
  -- A copy of the files has a new modification time, which not every role may read.
  if has_function_privilege('pg_stat_file(text)', 'execute') then
    copy := copy || ' ' || (select extract(epoch from change) from pg_stat_file('PG_VERSION')); end if;
  return concat_ws(' ', (select system_identifier from pg_control_system()),
    left(pg_walfile_name(pg_current_wal_insert_lsn()), 8), copy);
exception when others then
  -- Some providers forbid these functions. Each start of PostgreSQL then counts as another database.
  return concat_ws(' ', extract(epoch from pg_postmaster_start_time()), copy);
end $$;

-- Returns whether this database is the one that last gave out ids. Every statement that draws ids calls it, because a
-- connection may survive the promotion of a standby, and a pooler may connect it to another server.
create function is_same_database() returns boolean language plpgsql security definer set search_path from current as $$
begin return exists (select from database_identity where xmin = written_by and identity = present_identity()); end $$;

create view id_sequence as select sequence, greatest_id, pg_sequence_last_value(sequence) as last_id, margin_factor from (values
  ('chat_id'::regclass, (select max(chats.id) from chatbot cross join lateral (
    select max(id) from chat where chatbot_id = chatbot.id) chats (id)), 1),
  ('entry_id', (select max(entries.id) from chatbot cross join lateral (
    select max(id) from entry where chatbot_id = chatbot.id) entries (id)), 1),
  ('chatbot_id_seq', (select max(id) from chatbot), 0),
  ('audit_id_seq', (select max(id) from audit), 0)
) sequences (sequence, greatest_id, margin_factor);

-- Returns whether ids may be given out twice. If so, \`moves\` moves the sequences past all ids that were given out, even
-- if their rows are missing here: by 100,000, and for chats and entries by 100 more for each second since the newest
-- chat.
create function advance_sequences(moves boolean) returns boolean language plpgsql security definer set search_path from current as $$
declare
  margin bigint := (select 100 * least(31536000, greatest(0, extract(epoch from clock_timestamp() - max(last_time))))
    from chat_counter);
  may_reuse_ids boolean;
begin
  -- Imports take the same lock.
  perform pg_advisory_xact_lock(hashtextextended('parley.sequences.' || current_schema(), 0));
  may_reuse_ids := exists (select from id_sequence where greatest_id > coalesce(last_id, 0)) or not is_same_database()
    and (exists (select from database_identity) or pg_sequence_last_value('chat_id') is not null);
  if moves and may_reuse_ids then
    perform setval(sequence, greatest(greatest_id, last_id, 0) + 100000 + margin_factor * margin) from id_sequence; end if;
  if moves and not is_same_database() then
    insert into database_identity values (1, present_identity(), pg_current_xact_id()::xid)
    on conflict (id) do update set identity = excluded.identity, written_by = excluded.written_by; end if;
  return may_reuse_ids;
end $$;
`;
