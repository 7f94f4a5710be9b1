/**
 * Rows of idempotency keys, which chat creations and asks share. A row is in one of four states:
 *
 * - Claimed, while its ask runs: it has a turn, the end of the turn's lease, and the chat if there is one. When the
 *   lease ends, the key is free again. A creation claims and completes its key in one transaction.
 * - Completed, once the request has succeeded: it has the chat, the entry that an ask stored, the turn, and no lease.
 * - Stopped by a client while its ask waited or ran: it has neither a lease nor an entry, and a turn is lost.
 * - Old, and free again, a day after `made_at`. A sweep deletes it later.
 */
import { idempotencyKeyLifetime, turnLease, type IdempotencyKey } from "@parley/core/ports";
import { Effect } from "effect";
import type { PgPools } from "../connections/PgPools.ts";
import { batchStatement } from "./Statements.ts";

const isOld = (row: string) =>
  `${row}.made_at <= statement_timestamp() - interval '${idempotencyKeyLifetime} milliseconds'`;

/** Returns SQL for whether any request may claim the row's key. */
export const isFree = (row: string) =>
  `(${isOld(row)} or coalesce(${row}.turn_until <= clock_timestamp(), false))`;

/** SQL for the end of a lease that starts now. */
export const leaseEnd = `clock_timestamp() + interval '${turnLease} milliseconds'`;

/**
 * A CTE `claimed (key)` that claims those keys of the CTE `claim (key, fingerprint, turn, chat_id)` that are free, for
 * chatbot `$1` and the length of one lease.
 */
export const claimedCte = `
claimed as (
  insert into idempotency_key as k (chatbot_id, key, fingerprint, made_at, turn, turn_until, chat_id)
  select $1, key, fingerprint, clock_timestamp(), turn, ${leaseEnd}, chat_id
  from claim order by key
  on conflict (chatbot_id, key) do update set
    fingerprint = excluded.fingerprint, made_at = excluded.made_at,
    turn = excluded.turn, turn_until = excluded.turn_until, chat_id = excluded.chat_id, entry_id = null,
    stopped = false
  where ${isFree("k")}
  returning key
)`;

/** Claims keys for the creation of chats. A key that occurs twice is claimed for its first turn. */
export const claimStatement = batchStatement<IdempotencyKey & { readonly turnId: string }>(
  [
    ["key", "text", ({ key }) => key],
    ["fingerprint", "text", ({ fingerprint }) => fingerprint],
    ["turn", "text", ({ turnId }) => turnId],
  ],
  (items) => `
with claim as (
  select distinct on (key) key, fingerprint, turn, null::int8 as chat_id from ${items} order by key, index
), ${claimedCte}
select from claimed`,
);

/** The number of claims after which a sweep deletes old keys, and the maximum number of keys that it deletes. */
const sweep = { claims: 100, keys: 1000 };

/**
 * Creates a function that counts claims and occasionally deletes a chatbot's old keys. The deletion is a separate
 * statement: the cached plan of a claim may date from a time when there were few keys, and would read all of them.
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
