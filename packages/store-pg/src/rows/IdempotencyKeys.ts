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

const isOld = (row: string) =>
  `${row}.made_at <= statement_timestamp() - interval '${idempotencyKeyLifetime} milliseconds'`;

/** SQL for whether any request may claim the key of a row. */
export const isFree = (row: string) =>
  `(${isOld(row)} or (${row}.chat_id is null and ${row}.turn_until <= clock_timestamp()))`;

/**
 * CTEs that claim the keys of a CTE `wanted (key, fingerprint, turn)` for chatbot `$1` and one lease; `claimed` has
 * those that were free. They delete a few old keys, too.
 */
export const claimWanted = `
old as (
  delete from idempotency_key where chatbot_id = $1 and key in (
    select key from idempotency_key old
    where chatbot_id = $1 and exists (select from wanted) and key not in (select key from wanted) and ${isOld("old")}
    order by made_at limit 8 + 2 * (select count(*) from wanted) for update skip locked
  )
), claimed as (
  insert into idempotency_key as k (chatbot_id, key, fingerprint, made_at, turn, turn_until)
  select $1, key, fingerprint, clock_timestamp(), turn, clock_timestamp() + interval '${turnLease} milliseconds'
  from wanted order by key
  on conflict (chatbot_id, key) do update set
    fingerprint = excluded.fingerprint, made_at = excluded.made_at,
    turn = excluded.turn, turn_until = excluded.turn_until, chat_id = null, entry_id = null
  where ${isFree("k")}
  returning key
)`;

/** Claims keys for turns; of a key that occurs twice, for the first. */
export const claim = (
  chatbot: number,
  claims: ReadonlyArray<IdempotencyKey & { readonly turn: string }>,
): Statement => ({
  text: `
with wanted as (
  select distinct on (key) key, fingerprint, turn
  from unnest($2::text[], $3::text[], $4::text[]) with ordinality as w(key, fingerprint, turn, at) order by key, at
), ${claimWanted}
select from claimed`,
  values: [
    chatbot,
    texts(claims.map(({ key }) => key)),
    texts(claims.map(({ fingerprint }) => fingerprint)),
    texts(claims.map(({ turn }) => turn)),
  ],
});

/** Deletes the claims of the turns `$2`. */
export const deleteClaims = `
delete from idempotency_key where chatbot_id = $1 and turn = any ($2::text[]) and chat_id is null`;
