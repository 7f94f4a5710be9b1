/**
 * The rows of idempotency keys, as the creation of chats and the turns of asks both write them. One that is
 *
 * - claimed has a turn and its end, and no chat: when the turn has run out, the key is free again;
 * - settled has the chat, and the entry if there is one: both answer the next request with the key;
 * - older than a day (`made_at`) is free again, and is deleted when others are claimed.
 */
import { idempotencyKeyLifetime } from "@parley/core";
import { entryColumns } from "../Rows.ts";

const isOld = (row: string) =>
  `${row}.made_at <= statement_timestamp() - interval '${idempotencyKeyLifetime} milliseconds'`;

const isFree = (row: string) =>
  `(${isOld(row)} or (${row}.chat_id is null and ${row}.turn_until <= clock_timestamp()))`;

/**
 * Claims key `$2` of chatbot `$1` for the request with fingerprint `$3`, in turn `$4`, for `$5` milliseconds; no row if the
 * key is another's. Deletes a few keys that are too old.
 */
export const claimKey = `
with forgotten as (
  delete from idempotency_key where chatbot_id = $1 and key in (
    select key from idempotency_key old where chatbot_id = $1 and key <> $2 and ${isOld("old")}
    order by made_at limit 10 for update skip locked
  )
)
insert into idempotency_key as k (chatbot_id, key, fingerprint, made_at, turn, turn_until)
values ($1, $2, $3, clock_timestamp(), $4, clock_timestamp() + $5::int4 * interval '1 millisecond')
on conflict (chatbot_id, key) do update set
  fingerprint = excluded.fingerprint, made_at = excluded.made_at,
  turn = excluded.turn, turn_until = excluded.turn_until, chat_id = null, entry_id = null
where ${isFree("k")}
returning key`;

/** Looks up and locks key `$2`, and tells whether there is chat `$3`. */
export const lockKey = `
select k.fingerprint, k.turn, ${isFree("k")} as free, e.*,
  $3::int8 is null or exists (select from chat where chatbot_id = $1 and id = $3::int8) as exists,
  (extract(epoch from k.turn_until - clock_timestamp()) * 1000)::float8 as for_millis
from idempotency_key k left join lateral (
  select ${entryColumns} from entry e where e.chatbot_id = k.chatbot_id and e.id = k.entry_id
) e on true
where k.chatbot_id = $1 and k.key = $2
for update of k`;

/**
 * Deletes the keys of asks in turns `$2` that nothing will come of: such a key knows no chat. One that is locked is passed
 * over: its append or release deletes it.
 */
export const forgetAsks = `
delete from idempotency_key where chatbot_id = $1 and key in (
  select key from idempotency_key where chatbot_id = $1 and turn = any ($2::text[]) and chat_id is null
  for update skip locked)`;

/** Deletes key `$2` of turn `$3`, unless it is settled. */
export const forgetKey = `
delete from idempotency_key where chatbot_id = $1 and key = $2 and turn = $3 and chat_id is null`;
