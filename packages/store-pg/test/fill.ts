/**
 * Fills a schema with many chats, past the store, as the store would have made them.
 */
import { Effect } from "effect";
import type { SqlClient } from "effect/sql";

const words =
  "harbour lantern meadow copper violet thunder orchard whisper granite falcon ember willow saffron glacier pebble";

/** Chats of one chatbot: names of three words and a number, a user each hundred, some absent. */
export const fillChats = (sql: SqlClient.SqlClient, chatbot: number, chats: number) =>
  Effect.gen(function* () {
    yield* sql.unsafe(
      `insert into chatbot (id, workspace_name, name, description, settings)
      overriding system value values ($1, 'Filled', $2, '', '{}')`,
      [chatbot, `Chatbot ${chatbot}`],
    );
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
      `insert into tally (chatbot_id, chats, positions, last_time)
      select $1, count(*), count(*), max(create_time) from chat where chatbot_id = $1`,
      [chatbot],
    );
    yield* sql.unsafe(
      "select setval('chat_id', greatest((select max(id) from chat), (select last_value from chat_id)))",
    );
  });

/** Entries of the chatbot's first chat. */
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
  });

/** Brings the planner's statistics and the visibility map up to date, as autovacuum would. */
export const settle = (sql: SqlClient.SqlClient) =>
  Effect.forEach(["chat", "entry", "tally", "hole"], (table) =>
    sql.unsafe(`vacuum analyze ${table}`),
  );
