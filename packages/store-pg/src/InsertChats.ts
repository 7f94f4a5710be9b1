/**
 * The one statement that makes chats, many of a chatbot at once, each with its first entry if it has
 * one. Chat ids and positions follow the order of the input.
 */
import { fold, type NewEntry } from "@parley/core";
import { Effect } from "effect";
import { newEntryArrays, newEntryColumns, newEntryParameters } from "./NewEntries.ts";
import { array } from "./Parameters.ts";
import type { Session } from "./Session.ts";

export interface ChatToInsert {
  readonly name: string | null;
  readonly userRef: string | null;
  readonly entry: NewEntry | null;
}

export interface InsertedChat {
  readonly id: number;
  readonly position: number;
  readonly createTime: Date;
  /** `null` for a chat without an entry. */
  readonly entryId: number | null;
}

// The chat_counter's row is locked before any id is drawn, so ids ascend in the order of creation. Neither
// nextval nor RETURNING promise an order: ids are ranked, and rows are matched by their position.
const statement = `
with input as (
  select * from unnest($2::text[], $3::text[], $4::text[], ${newEntryParameters(5, "[]")})
    with ordinality as i(name, user_ref, folded_name, ${newEntryColumns}, n)
), counter as (
  insert into chat_counter as t (chatbot_id, chats, positions, last_time)
  values ($1, $15::int8, $15::int8, date_trunc('milliseconds', clock_timestamp()))
  on conflict (chatbot_id) do update set
    chats = t.chats + excluded.chats,
    positions = t.positions + excluded.positions,
    last_time = greatest(t.last_time, date_trunc('milliseconds', clock_timestamp()))
  returning positions - $15::int8 as before, last_time
), ranked as (
  select id, row_number() over (order by id) as n
  from (select nextval('chat_id') as id from counter, generate_series(1, $15::int8)) drawn
), made as (
  insert into chat (chatbot_id, id, position, name, user_ref, folded_name, create_time, entries, last_entry_time)
  select $1, ranked.id, before + n, name, user_ref, folded_name, last_time,
    case when answer is null then 0 else 1 end, case when answer is null then null else last_time end
  from input join ranked using (n) cross join counter
  returning id, position, create_time
), first_entry as (
  insert into entry (chatbot_id, chat_id, id, position, create_time, ${newEntryColumns})
  select $1, ranked.id, nextval('entry_id'), 1, last_time, ${newEntryColumns}
  from input join ranked using (n) cross join counter
  where answer is not null
  returning id, chat_id
)
select made.id, made.position, made.create_time, first_entry.id as entry_id, (made.position - counter.before)::int4 as n
from made cross join counter left join first_entry on first_entry.chat_id = made.id`;

/** Stores all of the chats or none; the results are in the order of the input. */
export const insertChats = (
  session: Session,
  chatbot: number,
  chats: ReadonlyArray<ChatToInsert>,
) =>
  Effect.map(
    session.query<{
      readonly id: bigint;
      readonly position: bigint;
      readonly create_time: Date;
      readonly entry_id: bigint | null;
      readonly n: number;
    }>(chatbot, statement, [
      chatbot,
      array(chats, "text", ({ name }) => name),
      array(chats, "text", ({ userRef }) => userRef),
      array(chats, "text", ({ name }) => (name === null ? null : fold(name))),
      ...newEntryArrays(chats, ({ entry }) => entry),
      chats.length,
    ]),
    (rows) => {
      const inserted = Array.from<InsertedChat>({ length: chats.length });
      for (const { create_time, entry_id, id, n, position } of rows) {
        inserted[n - 1] = {
          id: Number(id),
          position: Number(position),
          createTime: create_time,
          entryId: entry_id === null ? null : Number(entry_id),
        };
      }
      return inserted;
    },
  );
