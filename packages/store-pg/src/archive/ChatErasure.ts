/**
 * Erases whole chats, a batch at a time, and keeps totals, positions and pages exact.
 */
import { erasedUsageDays, type ColdRows } from "@parley/core/ports";
import { Effect } from "effect";
import { addGaps } from "../chats/ChatPositions.ts";
import { retryOnLocks, toStorageUnavailable } from "../connections/PgErrors.ts";
import { array, time } from "../connections/PgParams.ts";
import type { PgPools } from "../connections/PgPools.ts";
import { byPrimaryKey } from "../rows/Statements.ts";

export const makeErasure =
  ({ erasureSession, writes }: PgPools): ColdRows["erase"] =>
  (chatbot, which, onErased) =>
    Effect.gen(function* () {
      // A client's deletion of one chat needs no connection of its own.
      const { query, transaction } = which._tag === "Chat" ? writes : yield* erasureSession;
      const userRef = which._tag === "UserRef" ? which.userRef : null;
      const limit = time(which._tag === "IdleSince" ? which.limit : null);
      const deleteLocked = Effect.fnUntraced(function* (rows: ReadonlyArray<LockedRow>) {
        const chats = array(rows, "int8", ({ id }) => id);
        const positions = array(rows, "int8", ({ position }) => position);
        for (const [text, value] of [
          [lockRows(entriesOfChats), chats],
          [deleteChats, chats],
          [countGaps, positions],
          [lockRows(keysOfChats), chats],
          [deleteKeys, chats],
          [countErased, rows.length],
        ] as const)
          yield* query(chatbot, text, [chatbot, value]);
        return rows.length;
      });
      /**
       * Erases those of the given chats that still meet the condition of the erasure. The chats are locked before they
       * are deleted, so that entries appended during the wait for the locks are seen. Statements of turns skip locked
       * chats, but writers wait for keys and for the counter, which are therefore locked last.
       */
      const eraseBatch = (ids: ReadonlyArray<bigint>) => {
        const values = [chatbot, array(ids, "int8", (id) => id), limit];
        const lockedRows = query<LockedRow>(chatbot, lockChats, values);
        // An interruption must not come between the COMMIT and the count, but may cancel the wait for the chats' locks.
        return Effect.uninterruptibleMask((restore) =>
          Effect.map(
            transaction(chatbot, Effect.flatMap(restore(lockedRows), deleteLocked)),
            onErased,
          ),
        ).pipe(retryOnLocks);
      };
      if (which._tag === "Chat") return yield* eraseBatch([BigInt(which.id)]);
      const [counter] = yield* query<{ readonly positions: bigint }>(chatbot, lastPosition, [
        chatbot,
      ]);
      let after: bigint | null = 0n;
      while (after !== null) {
        // Stops at the position that was last at the start: chats created meanwhile must not prolong the erasure.
        const values = [chatbot, after, counter?.positions ?? 0n, userRef, limit];
        const [batch] = (yield* query<BatchRow>(chatbot, findChats, values)) as [BatchRow];
        if (batch.ids !== null) yield* eraseBatch(batch.ids);
        after = batch.resume_after;
      }
      yield* retryOnLocks(query(chatbot, deleteVisitorKeys, [chatbot, userRef, limit]));
    }).pipe(Effect.scoped, toStorageUnavailable);

interface LockedRow {
  readonly id: bigint;
  readonly position: bigint;
}

interface BatchRow {
  readonly ids: ReadonlyArray<bigint> | null;
  /** The position after which there may be more chats; `null` at the end. */
  readonly resume_after: bigint | null;
}

const lastPosition = "select positions from chat_counter where chatbot_id = $1";

const isIdle = (limit: string) =>
  `(${limit}::timestamptz is null or greatest(last_entry_time, create_time) < ${limit}::timestamptz)`;

// Creation times never decrease as positions increase, so the search can end at a chat created at or after the limit.
const findChats = `
select array_agg(id order by position) filter (where ${isIdle("$5")}) as ids,
  case when $5::timestamptz is null or max(create_time) < $5::timestamptz then max(position) end as resume_after
from (
  select id, position, create_time, last_entry_time from chat
  where chatbot_id = $1 and position > $2::int8 and position <= $3::int8 and ($4::text is null or user_ref = $4)
  order by position limit 1000
) batch`;

// Locks chats in order of id, which is also the order of positions.
const lockChats = `
select chat.* from unnest($2::int8[]) requested_id cross join lateral (
  select id, position from chat ${byPrimaryKey("id", "requested_id", isIdle("$3"))} for update
) chat`;

const today = "(clock_timestamp() at time zone 'UTC')::date";
const oldestDay = `${today} - ${erasedUsageDays}`;

// The rows of each chat, which are looked up separately: for a condition on several chats, PostgreSQL 15 may read all
// rows of a large chatbot.
const rowsOfChats = (table: string, ofChat: string) => `(
  select rows.ctid from unnest($2::int8[]) erased_id cross join lateral (
    select ctid from ${table} where chatbot_id = $1 and ${ofChat} for update
  ) rows
)`;
const entriesOfChats = rowsOfChats("entry", "chat_id = erased_id order by position");
const keysOfChats = rowsOfChats(
  "idempotency_key",
  "chat_id between erased_id and erased_id order by chat_id",
);

// A statement of its own: one that deletes rows by their ctids would miss those that change while it waits for a lock.
const lockRows = (rows: string) => `select count(*) from ${rows} locked`;

// Erasures of a chatbot take turns at the rows of `erased_usage` in their order.
const deleteChats = `
with entries as (
  delete from entry where ctid = any (array${entriesOfChats})
  returning (create_time at time zone 'UTC')::date as day, key_id, provider, model, attempts, prompt_tokens,
    completion_tokens, question <> '' and not flagged as is_answer
), kept as (
  insert into erased_usage as u
    (chatbot_id, day, key_id, provider, model, answers, attempts, prompt_tokens, completion_tokens)
  select $1::int4, day, key_id, provider, model, count(*), coalesce(sum(attempts), 0),
    coalesce(sum(prompt_tokens), 0), coalesce(sum(completion_tokens), 0)
  from entries where is_answer and day >= ${oldestDay}
  group by day, key_id, provider, model order by day, key_id, provider, model
  on conflict (chatbot_id, day, key_id, provider, model) do update set
    answers = u.answers + excluded.answers, attempts = u.attempts + excluded.attempts,
    prompt_tokens = u.prompt_tokens + excluded.prompt_tokens,
    completion_tokens = u.completion_tokens + excluded.completion_tokens
), expired as (
  delete from erased_usage where chatbot_id = $1 and day < ${oldestDay}
)
delete from chat where ctid = any (array(
  select chat.ctid from unnest($2::int8[]) erased_id
  cross join lateral (select ctid from chat ${byPrimaryKey("id", "erased_id")}) chat
))`;

const deleteKeys = `delete from idempotency_key where ctid = any (array${keysOfChats})`;

// Deletes the keys of visitors' asks that have no chat; such a key contains its visitor's `userRef`. Keys are locked in
// key order, as in turns and creations. `deleteKeys` locks in no particular order; its transaction is retried after a
// deadlock.
const deleteVisitorKeys = `
delete from idempotency_key where chatbot_id = $1 and key = any (array(
  select key from idempotency_key
  where chatbot_id = $1 and chat_id is null and strpos(key, chr(10)) > 0
    and ($2::text is null or substr(key, strpos(key, chr(10)) + 1) = $2)
    and ($3::timestamptz is null or turn_until < $3)
  order by key for update
))`;

const countGaps = `
with gone as (select $1::int4 as chatbot_id, position from unnest($2::int8[]) position)${addGaps}`;

const countErased = "update chat_counter set chats = chats - $2::int8 where chatbot_id = $1";
