/**
 * Rows of idempotency keys, which creations of chats and turns of asks share. A row is
 *
 * - claimed, with a turn, the end of its lease and the chat if it exists, while its ask runs; when the lease ends, the
 *   key is free again. A creation claims and completes its key in one transaction;
 * - completed, with the chat, the entry if the request stored one, the turn, and no lease, when the request has
 *   succeeded;
 * - old and free again a day after `made_at`. A sweep deletes it later.
 */
import { idempotencyKeyLifetime, turnLease, type IdempotencyKey } from "@parley/core/ports";
import { Effect } from "effect";
import type { PgPools } from "../database/PgPools.ts";
import { batchStatement } from "./Statements.ts";

const isOld = (row: string) =>
  `${row}.made_at <= statement_timestamp() - interval '${idempotencyKeyLifetime} milliseconds'`;

/** SQL for whether any request may claim the key of a row. */
export const isFree = (row: string) =>
  `(${isOld(row)} or coalesce(${row}.turn_until <= clock_timestamp(), false))`;

/** SQL for the end of a lease that begins now. */
export const leaseEnd = `clock_timestamp() + interval '${turnLease} milliseconds'`;

/**
 * A CTE `claimed (key)`: claims the free keys of a CTE `claim (key, fingerprint, turn, chat_id)`, for chatbot `$1` and
 * one lease.
 */
export const claimedCte = `
claimed as (
  insert into idempotency_key as k (chatbot_id, key, fingerprint, made_at, turn, turn_until, chat_id)
  select $1, key, fingerprint, clock_timestamp(), turn, ${leaseEnd}, chat_id
  from claim order by key
  on conflict (chatbot_id, key) do update set
    fingerprint = excluded.fingerprint, made_at = excluded.made_at,
    turn = excluded.turn, turn_until = excluded.turn_until, chat_id = excluded.chat_id, entry_id = null
  where ${isFree("k")}
  returning key
)`;

/** Claims keys for turns; a key that occurs twice, for the first turn. */
export const claimStatement = batchStatement<IdempotencyKey & { readonly turnId: string }>(
  [
    ["key", "text", ({ key }) => key],
    ["fingerprint", "text", ({ fingerprint }) => fingerprint],
    ["turn", "text", ({ turnId }) => turnId],
  ],
  (items) => `
with claim as (
  select distinct on (key) key, fingerprint, turn, null::int8 as chat_id from ${items} order by key, at
), ${claimedCte}
select from claimed`,
);

/** After how many claims a sweep deletes old keys, and how many it deletes at most. */
const sweep = { claims: 100, keys: 1000 };

/**
 * Creates a function that counts claims and now and then deletes old keys of a chatbot, in a separate statement,
 * because the cached plan of a statement that claims may date from a time with few keys, and would read them all.
 */
export const makeKeySweep = Effect.fnUntraced(function* ({ bulk }: PgPools) {
  const scope = yield* Effect.scope;
  let claims = sweep.claims;
  return (chatbot: number, newClaims: number): Effect.Effect<void> =>
    Effect.suspend(() => {
      claims += newClaims;
      if (newClaims === 0 || claims < sweep.claims) return Effect.void;
      claims = 0;
      return Effect.asVoid(
        Effect.forkIn(Effect.ignore(bulk.query(chatbot, deleteOldKeys, [chatbot])), scope),
      );
    });
});

const deleteOldKeys = `
delete from idempotency_key where chatbot_id = $1 and key = any (array(
  select key from idempotency_key k where chatbot_id = $1 and ${isOld("k")}
  order by made_at limit ${sweep.keys} for update skip locked
))`;
