/**
 * Fills a schema with many chats, bypassing the store. The rows are as the store would have written them.
 */
import { ChatbotId } from "@parley/core/ports";
import { migratePostgres, type PostgresOptions } from "@parley/store-pg";
import { Effect } from "effect";
import type { SqlClient } from "effect/sql";
import { addGaps, partSizes } from "../src/chats/ChatPositions.ts";
import { makeMigrationClient } from "../src/connections/PgPools.ts";

/** The chatbot that `fillSchema` fills. */
export const filledChatbot = ChatbotId.make(1_000_001);

const words =
  "harbour lantern meadow copper violet thunder orchard whisper granite falcon ember willow saffron glacier pebble";

const insertChatbot = (sql: SqlClient.SqlClient, chatbot: number) =>
  sql.unsafe(
    `insert into chatbot (id, workspace_name, name, description, settings)
    overriding system value values ($1, 'Filled', $2, '', '{}')`,
    [chatbot, `Chatbot ${chatbot}`],
  );

/** Inserts a chatbot and its chats. Most have a name of three words and a number; each user has ninety chats. */
export const fillChats = (sql: SqlClient.SqlClient, chatbot: number, chats: number) =>
  Effect.gen(function* () {
    yield* insertChatbot(sql, chatbot);
    yield* sql.unsafe(
      `with word as (select string_to_array($3, ' ') as list)
      insert into chat (chatbot_id, id, position, name, user_ref, folded_name, create_time, entries)
      select $1, n, n, name, case when n % 10 > 0 then 'user ' || n / 100 end, lower(name),
        timestamptz '2026-01-01' + n * interval '10 milliseconds', 0
      from generate_series(1, $2::int8) n, word, lateral (
        select case when n % 20 > 0 then list[1 + n % 15] || ' ' || initcap(list[1 + (n / 7) % 15]) || ' '
          || list[1 + (n / 31) % 15] || ' ' || n end as name
      ) named`,
      [chatbot, chats, words],
    );
    yield* sql.unsafe(
      `insert into chat_counter (chatbot_id, chats, positions, last_time)
      select $1, count(*), count(*), max(create_time) from chat where chatbot_id = $1`,
      [chatbot],
    );
    yield* sql.unsafe(
      "select setval('chat_id', greatest((select max(id) from chat), (select last_value from chat_id)))",
    );
  });

/** Erases one chat in `many`, evenly over all positions. */
export const eraseEvery = (sql: SqlClient.SqlClient, chatbot: number, many: number) =>
  Effect.gen(function* () {
    yield* sql.unsafe(
      `with gone as (
        delete from chat where chatbot_id = $1 and position % $2::int8 = 0
        returning chatbot_id, position
      )${addGaps}`,
      [chatbot, many],
    );
    yield* sql.unsafe(
      `update chat_counter set
        chats = (select count(*) from chat where chatbot_id = $1)
      where chatbot_id = $1`,
      [chatbot],
    );
  });

/** Inserts a chat at the first of every hundred positions, as if the other chats had been erased. */
export const fillThinned = (sql: SqlClient.SqlClient, chatbot: number, positions: number) =>
  Effect.gen(function* () {
    yield* insertChatbot(sql, chatbot);
    yield* sql.unsafe(
      `insert into chat (chatbot_id, id, position, create_time, entries)
      select $1, n, n, timestamptz '2026-01-01' + n * interval '1 millisecond', 0
      from generate_series(1, $2::int8, 100) n`,
      [chatbot, positions],
    );
    // Inserted in random order, as erasures would.
    yield* sql.unsafe(
      `insert into position_gap (chatbot_id, part_size, number, chats_before)
      select $1, part_size, number, array(
        select (first + n * part_size + 99) / 100 - (first + 99) / 100
        from generate_series(0, 256) n order by n
      )
      from unnest($3::int8[]) part_size
      cross join generate_series(0, ($2::int8 - 1) / (part_size * 256)) number
      cross join lateral (select number * part_size * 256 as first) gaps
      order by hashint8(number)`,
      [chatbot, positions, `{${partSizes.join()}}`],
    );
    yield* sql.unsafe(
      `insert into chat_counter (chatbot_id, chats, positions, last_time)
      select $1, count(*), $2::int8, now() from chat where chatbot_id = $1`,
      [chatbot, positions],
    );
  });

/** Inserts entries into the chatbot's first chat. */
export const fillEntries = (sql: SqlClient.SqlClient, chatbot: number, entries: number) =>
  Effect.gen(function* () {
    yield* sql.unsafe(
      `insert into entry (chatbot_id, chat_id, id, position, question, answer, moderation, flagged, create_time)
      select $1, 1, n, n, 'question ' || n, 'answer ' || n, 'none', false,
        timestamptz '2026-02-01' + n * interval '10 milliseconds'
      from generate_series(1, $2::int8) n`,
      [chatbot, entries],
    );
    yield* sql.unsafe(
      `update chat set entries = $2::int8, last_entry_time = now() where chatbot_id = $1 and id = 1`,
      [chatbot, entries],
    );
    yield* sql.unsafe(
      "select setval('entry_id', greatest((select max(id) from entry), (select last_value from entry_id)))",
    );
  });

/** Brings the planner's statistics and the visibility map up to date, as autovacuum would. */
export const settle = (sql: SqlClient.SqlClient) =>
  Effect.forEach(["chat", "entry", "idempotency_key", "chat_counter", "position_gap"], (table) =>
    sql.unsafe(`vacuum analyze ${table}`),
  );

/**
 * Creates a schema with this many rows, unless it is already filled. Recreates the indexes after inserting the rows.
 */
export const fillSchema = ({
  chats,
  entries,
  schema,
  url,
}: PostgresOptions & {
  readonly schema: string;
  readonly chats: number;
  readonly entries: number;
}) =>
  Effect.gen(function* () {
    yield* migratePostgres({ url, schema });
    const sql = yield* makeMigrationClient({ url, schema, maxConnections: 1 });
    yield* sql.unsafe("set maintenance_work_mem = '1GB'");
    const [chat_counter] = yield* sql.unsafe("select from chat_counter where chatbot_id = $1", [
      filledChatbot,
    ]);
    if (chat_counter !== undefined) return;
    const indexes = yield* sql.unsafe<{ readonly name: string; readonly definition: string }>(
      `select indexname as name, indexdef as definition from pg_indexes
      where schemaname = $1 and tablename in ('chat', 'entry') and indexname not like '%pkey'`,
      [schema],
    );
    for (const { name } of indexes) yield* sql.unsafe(`drop index ${name}`);
    yield* fillChats(sql, filledChatbot, chats);
    yield* fillEntries(sql, filledChatbot, entries);
    for (const { definition } of indexes) yield* sql.unsafe(definition);
    yield* settle(sql);
  }).pipe(Effect.scoped);
