/**
 * Claiming and settling retry keys, as the creation of chats and the turns of asks both do.
 */
import { retryKeyLifetime } from "@parley/core";

const tooOld = `statement_timestamp() - interval '${retryKeyLifetime} milliseconds'`;

/**
 * SQL that claims keys `$2` of chatbot `$1` for the requests with fingerprints `$3`, and for a turn if one is given; no
 * row for a key that is taken, which is locked. A key whose request ended without a trace, because its process was
 * killed, is anybody's. A few keys that are too old, at most `forgotten`, go with the new ones.
 */
export const claimKeys = (turn: string, turnUntil: string, forgotten = 10): string => `
with forgotten as (
  delete from request where chatbot_id = $1 and key in (
    select key from request where chatbot_id = $1 and key <> all ($2::text[]) and made_at <= ${tooOld}
    order by made_at limit ${forgotten} for update skip locked
  )
)
insert into request as r (chatbot_id, key, fingerprint, made_at, turn, turn_until)
select $1, key, fingerprint, clock_timestamp(), ${turn}, ${turnUntil}
from unnest($2::text[], $3::text[]) wanted(key, fingerprint)
on conflict (chatbot_id, key) do update set
  fingerprint = excluded.fingerprint, made_at = excluded.made_at,
  turn = excluded.turn, turn_until = excluded.turn_until, chat_id = null, entry_id = null
where r.made_at <= ${tooOld}
  or (r.chat_id is null and r.entry_id is null and r.turn_until <= clock_timestamp())
returning key, turn`;

/** SQL that locks keys `$2` of asks that are in turns `$3`, and tells which those are. */
export const lockKeys = `
select r.key, r.turn from unnest($2::text[], $3::text[]) wanted(key, turn) cross join lateral (
  select key, turn from request
  where chatbot_id = $1 and key = wanted.key and turn = wanted.turn and entry_id is null
  offset 0 for update
) r`;

/**
 * SQL that forgets the keys of asks, in turns `$2`, that nothing will come of: a key of an ask knows no chat. One that
 * is locked is passed over: whoever appends, or is through, forgets it.
 */
export const forgetAsks = `
delete from request where chatbot_id = $1 and key in (
  select key from request where chatbot_id = $1 and turn = any ($2::text[]) and chat_id is null and entry_id is null
  for update skip locked)`;

/**
 * SQL that notes what came of keys `$2`, which are locked, and are known from now on: chats `$3`, and entries `$4` where
 * asks made them. Each is looked up by itself, whatever the planner thinks of the chatbot.
 */
export const settleKeys = `
update request set made_at = clock_timestamp(), turn_until = null, chat_id = made.chat_id, entry_id = made.entry_id
from unnest($2::text[], $3::int8[], $4::int8[]) made(name, chat_id, entry_id) cross join lateral (
  select ctid as at from request where chatbot_id = $1 and key = name offset 0
) found
where request.ctid = at and request.chatbot_id = $1`;
