/**
 * Claiming and settling retry keys, as the creation of chats and the turns of asks both do.
 */
import { retryKeyLifetime } from "@parley/core";

const tooOld = `statement_timestamp() - interval '${retryKeyLifetime} milliseconds'`;

/**
 * SQL that claims key `$2` of chatbot `$1` for the request with fingerprint `$3`, and for a turn if one
 * is given; no row when the key is taken. A key whose request ended without a trace, because its process
 * was killed, is anybody's. A few keys that are too old go with each new one.
 */
export const claimKey = (turn: string, turnUntil: string): string => `
with forgotten as (
  delete from request where chatbot_id = $1 and key in (
    select key from request where chatbot_id = $1 and key <> $2 and made_at <= ${tooOld}
    order by made_at limit 10 for update skip locked
  )
)
insert into request as r (chatbot_id, key, fingerprint, made_at, turn, turn_until)
values ($1, $2, $3, clock_timestamp(), ${turn}, ${turnUntil})
on conflict (chatbot_id, key) do update set
  fingerprint = excluded.fingerprint, made_at = excluded.made_at,
  turn = excluded.turn, turn_until = excluded.turn_until, chat_id = null, entry_id = null
where r.made_at <= ${tooOld}
  or (r.chat_id is null and r.entry_id is null and r.turn_until <= clock_timestamp())
returning turn`;

/**
 * SQL that forgets the keys of asks, in turns `$2`, that nothing will come of: a key of an ask knows no chat. One that
 * is locked is passed over: whoever appends, or is through, forgets it.
 */
export const forgetAsks = `
delete from request where chatbot_id = $1 and key in (
  select key from request where chatbot_id = $1 and turn = any ($2::text[]) and chat_id is null and entry_id is null
  for update skip locked)`;

/** SQL that notes what came of key `$2`, known from now on: chat `$3`, and entry `$4` if an ask made one. */
export const settleKey = `
update request set made_at = clock_timestamp(), turn_until = null, chat_id = $3::int8, entry_id = $4::int8
where chatbot_id = $1 and key = $2`;
