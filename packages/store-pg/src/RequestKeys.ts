/**
 * The rows of retry keys, as the creation of chats and the turns of asks both write them. One that is
 *
 * - claimed by a creation, until that commits, has neither turn, chat nor entry;
 * - in an ask's turn has that and its end, and no entry: when the turn has run out, the key is anybody's;
 * - settled has the chat, and the entry if an ask made it: both are told to whoever comes with the key again;
 * - older than a day (`made_at`) is anybody's, and is forgotten when others are claimed.
 */
import { retryKeyLifetime } from "@parley/core";
import { entryColumns } from "./Rows.ts";

const tooOld = `statement_timestamp() - interval '${retryKeyLifetime} milliseconds'`;

/**
 * SQL that claims keys `$2` of chatbot `$1` for the requests with fingerprints `$3`, and for a turn if one is given; no
 * row for a key that is taken, which is locked. A key whose request ended without a trace, because its process was
 * killed, is anybody's. A few keys that are too old, at most `forgotten`, go with the new ones.
 */
export const claimKeys = (turn: string, turnUntil: string, forgotten = 10): string => `
with forgotten as (
  delete from idempotency_key where chatbot_id = $1 and key in (
    select key from idempotency_key where chatbot_id = $1 and key <> all ($2::text[]) and made_at <= ${tooOld}
    order by made_at limit ${forgotten} for update skip locked
  )
)
insert into idempotency_key as r (chatbot_id, key, fingerprint, made_at, turn, turn_until)
select $1, key, fingerprint, clock_timestamp(), ${turn}, ${turnUntil}
from unnest($2::text[], $3::text[]) wanted(key, fingerprint)
on conflict (chatbot_id, key) do update set
  fingerprint = excluded.fingerprint, made_at = excluded.made_at,
  turn = excluded.turn, turn_until = excluded.turn_until, chat_id = null, entry_id = null
where r.made_at <= ${tooOld}
  or (r.chat_id is null and r.entry_id is null and r.turn_until <= clock_timestamp())
returning key, turn`;

/**
 * The same for asks, whose turns end after `$4` milliseconds; tells the row that it was, if its turn had run out. What is
 * looked up in RETURNING is as it was before the statement, and any other may be gone since.
 */
export const claimForTurn = `${claimKeys(
  "gen_random_uuid()::text",
  "clock_timestamp() + $4::int4 * interval '1 millisecond'",
)}, (
  select to_json(b)::text from idempotency_key b
  where b.chatbot_id = $1 and b.key = r.key and b.chat_id is null and b.entry_id is null
    and b.turn_until <= clock_timestamp()
) as before`;

/** SQL that locks keys `$2` of asks that are in turns `$3`, and tells which those are. */
export const lockKeys = `
select r.key, r.turn from unnest($2::text[], $3::text[]) wanted(key, turn) cross join lateral (
  select key, turn from idempotency_key
  where chatbot_id = $1 and key = wanted.key and turn = wanted.turn and entry_id is null
  offset 0 for update
) r`;

/**
 * SQL that forgets the keys of asks, in turns `$2`, that nothing will come of: a key of an ask knows no chat. One that
 * is locked is passed over: whoever appends, or is through, forgets it.
 */
export const forgetAsks = `
delete from idempotency_key where chatbot_id = $1 and key in (
  select key from idempotency_key where chatbot_id = $1 and turn = any ($2::text[]) and chat_id is null and entry_id is null
  for update skip locked)`;

/**
 * SQL that notes what came of keys `$2`, which are locked, and are known from now on: chats `$3`, and entries `$4` where
 * asks made them. A conflict is found key by key in the primary key's index, whatever the planner thinks of the table,
 * where it may compare all with all to join them.
 */
export const settleKeys = `
insert into idempotency_key as r (chatbot_id, key, fingerprint, made_at, chat_id, entry_id)
select $1, key, '', clock_timestamp(), chat_id, entry_id
from unnest($2::text[], $3::int8[], $4::int8[]) made(key, chat_id, entry_id)
on conflict (chatbot_id, key) do update set
  made_at = excluded.made_at, turn_until = null, chat_id = excluded.chat_id, entry_id = excluded.entry_id`;

/** SQL that makes key `$2` what it was (`$4`, as JSON) before turn `$3` claimed it. */
export const giveKeyBack = `
update idempotency_key set
  fingerprint = b.fingerprint, made_at = b.made_at, turn = b.turn, turn_until = b.turn_until
from json_populate_record(null::idempotency_key, $4::json) b
where idempotency_key.chatbot_id = $1 and idempotency_key.key = $2 and idempotency_key.turn = $3`;

/** SQL that forgets key `$2` of turn `$3`. */
export const forgetKey =
  "delete from idempotency_key where chatbot_id = $1 and key = $2 and turn = $3";

/** SQL that tells what became of key `$2`, and whether there is chat `$3`. */
export const knownRequest = `
select r.fingerprint, r.turn, e.*,
  $3::int8 is null or exists (select from chat where chatbot_id = $1 and id = $3::int8) as exists,
  (extract(epoch from r.turn_until - clock_timestamp()) * 1000)::float8 as for_millis
from idempotency_key r left join lateral (
  select ${entryColumns} from entry e where e.chatbot_id = r.chatbot_id and e.id = r.entry_id
) e on true
where r.chatbot_id = $1 and r.key = $2`;
