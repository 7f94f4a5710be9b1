/**
 * Rows of idempotency keys, which creations of chats and turns of asks share. A row is
 *
 * - claimed, with a turn and the end of its lease, while its ask runs; when the lease ends, the key is free again. A
 *   creation claims and settles its key in one transaction;
 * - settled, with the chat and its entry if there is one, when the request has succeeded;
 * - free again a day after `made_at`. Later claims delete it.
 */
import { idempotencyKeyLifetime, turnLease, type IdempotencyKey } from "@parley/core";
import { texts } from "../database/PgParams.ts";
import type { Statement } from "../database/TenantSession.ts";
import { entryColumns } from "./ChatRows.ts";

const isOld = (row: string) =>
  `${row}.made_at <= statement_timestamp() - interval '${idempotencyKeyLifetime} milliseconds'`;

const isFree = (row: string) =>
  `(${isOld(row)} or (${row}.chat_id is null and ${row}.turn_until <= clock_timestamp()))`;

/**
 * Claims the keys `$2` of chatbot `$1` for the requests with fingerprints `$3` in turns `$4`, for `$5` milliseconds.
 * Returns those that were free; of a key that occurs twice, the first. Deletes a few old keys.
 */
const claimKeys = `
with wanted as (
  select distinct on (key) key, fingerprint, turn
  from unnest($2::text[], $3::text[], $4::text[]) with ordinality as w(key, fingerprint, turn, at) order by key, at
), forgotten as (
  delete from idempotency_key where chatbot_id = $1 and key in (
    select key from idempotency_key old where chatbot_id = $1 and key <> all ($2::text[]) and ${isOld("old")}
    order by made_at limit 8 + 2 * cardinality($2::text[]) for update skip locked
  )
)
insert into idempotency_key as k (chatbot_id, key, fingerprint, made_at, turn, turn_until)
select $1, key, fingerprint, clock_timestamp(), turn, clock_timestamp() + $5::int4 * interval '1 millisecond'
from wanted order by key
on conflict (chatbot_id, key) do update set
  fingerprint = excluded.fingerprint, made_at = excluded.made_at,
  turn = excluded.turn, turn_until = excluded.turn_until, chat_id = null, entry_id = null
where ${isFree("k")}
returning key`;

export const claim = (
  chatbot: number,
  claims: ReadonlyArray<IdempotencyKey & { readonly turn: string }>,
): Statement => ({
  text: claimKeys,
  values: [
    chatbot,
    texts(claims.map(({ key }) => key)),
    texts(claims.map(({ fingerprint }) => fingerprint)),
    texts(claims.map(({ turn }) => turn)),
    turnLease,
  ],
});

/** Locks key `$2` and returns its row, and whether chat `$3` exists. */
export const lockKey = `
select k.fingerprint, k.turn, ${isFree("k")} as free, e.*,
  $3::int8 is null or exists (select from chat where chatbot_id = $1 and id = $3::int8) as exists,
  (extract(epoch from k.turn_until - clock_timestamp()) * 1000)::float8 as for_millis
from idempotency_key k left join lateral (
  select ${entryColumns} from entry e where e.chatbot_id = k.chatbot_id and e.id = k.entry_id
) e on true
where k.chatbot_id = $1 and k.key = $2
for update of k`;

/** Deletes the claims of the turns `$2`. */
export const deleteClaims = `
delete from idempotency_key where chatbot_id = $1 and turn = any ($2::text[]) and chat_id is null`;
