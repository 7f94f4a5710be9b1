/**
 * Takes turns. Takes for one chatbot that arrive together share a statement, which decides each one separately, as the
 * core's `decideTake` does.
 */
import {
  ChatbotNotFound,
  ChatNotFound,
  IdempotencyKeyReused,
  pickEntry,
  turnEntries,
  turnLease,
  turnPrecedence,
  type Entry,
  type TakeDecision,
  type TakeResult,
  type Turn,
} from "@parley/core/ports";
import { Effect } from "effect";
import { makeWriteBatcher } from "../writes/WriteBatcher.ts";
import { deadlines, withDeadline } from "../connections/Deadlines.ts";
import { toStoreErrors, toChatbotNotFound, toStorageUnavailable } from "../connections/PgErrors.ts";
import type { PgPools } from "../connections/PgPools.ts";
import { byPrimaryKey, batchStatement, type Column } from "../rows/Statements.ts";
import { entryColumns, toEntry, type StoredEntry } from "../rows/ChatRows.ts";
import { claimedCte, isFree, leaseEnd, makeKeySweep } from "../rows/IdempotencyKeys.ts";
import { turnColumns } from "./TurnRows.ts";

/** The decision on a request; `chat_locked` if another transaction has locked the chat; `overtaken`: decide again. */
type Decision =
  | Extract<TakeDecision, string>
  | "key_held"
  | "chat_held"
  | "chat_locked"
  | "chat_reserved"
  | "overtaken";

/** A decision, with an entry if there is one: the key's entry, or one of the chat's newest entries. */
type DecisionRow = {
  /** The request's position in the batch, from 1. */
  readonly index: number;
  readonly decision: Decision;
  /** The id of the turn that stored the key's entry. */
  readonly key_turn: string | null;
  /** When another take may succeed, in milliseconds from now. */
  readonly free_in: number | null;
  /** The number of entries in the chat, according to its locked row. */
  readonly entries: number | null;
  /** The position of this row's entry. */
  readonly position: number | null;
  readonly chat_name: string | null;
  readonly chat_user_ref: string | null;
  readonly chat_time: Date | null;
} & (StoredEntry | { readonly id: null });

/** Creates the port's `take`. `entriesOf` reads the newest entries for a turn that was taken. */
export const makeTakeTurn = Effect.fnUntraced(function* <E>(
  pools: PgPools,
  entriesOf: (turn: Turn) => Effect.Effect<ReadonlyArray<Entry>, E>,
) {
  const instance = crypto.randomUUID();
  const sweepKeys = yield* makeKeySweep(pools);

  const decide = yield* makeWriteBatcher(
    Effect.fnUntraced(function* (chatbot: number, turns: ReadonlyArray<Turn>) {
      const { text, values } = takeStatement(turns, chatbot, instance);
      const rows = yield* pools.writes
        .query<DecisionRow>(chatbot, text, values)
        .pipe(toChatbotNotFound(chatbot), toStoreErrors);
      yield* sweepKeys(
        chatbot,
        turns.filter(({ idempotencyKey }) => idempotencyKey !== null).length,
      );
      const decisions = turns.map((): Array<DecisionRow> => []);
      for (const row of rows) decisions[row.index - 1]!.push(row);
      for (const requestRows of decisions) requestRows.sort((a, b) => b.position! - a.position!);
      return decisions;
    }),
    100,
  );

  return Effect.fnUntraced(function* (
    chatbot: Turn["chatbot"],
    chatId: Turn["chatId"],
    idempotencyKey: Turn["idempotencyKey"],
    visitor: string | null = null,
  ) {
    const id = crypto.randomUUID();
    const turn: Turn = { id, chatbot, chatId, idempotencyKey, chat: null, visitor, newest: [] };
    // A turn with neither chat nor key has no row: the append creates the chat.
    if (chatId === null && idempotencyKey === null) {
      yield* toStorageUnavailable(pools.assertWritable);
      return { _tag: "TurnTaken", turn } satisfies TakeResult;
    }
    let rows: ReadonlyArray<DecisionRow>;
    do rows = yield* decide(chatbot, turn);
    while (rows[0]!.decision === "overtaken");
    const { decision, entries, free_in, key_turn, position } = rows[0]!;
    const heldBy = (by: "chat" | "key") =>
      ({ _tag: "Held", by, forMillis: free_in! }) satisfies TakeResult;
    switch (decision) {
      case "key_reused":
        return yield* new IdempotencyKeyReused();
      case "stopped":
        return { _tag: "Stopped" } satisfies TakeResult;
      case "answered":
        return {
          _tag: "AlreadyAnswered",
          entry: toEntry(rows[0] as StoredEntry),
          turnId: key_turn!,
        } satisfies TakeResult;
      case "no_chat":
        return yield* new ChatNotFound({ chatId: chatId! });
      case "no_chatbot":
        return yield* new ChatbotNotFound({ chatbot });
      case "key_held":
        return heldBy("key");
      case "chat_held":
      case "chat_locked":
      case "chat_reserved":
        return heldBy("chat");
      default: {
        // An append may have been committed after the snapshot and before the turn was taken. A second read is exact,
        // now that this request holds the turn.
        const chat = chatId && {
          id: chatId,
          name: rows[0]!.chat_name,
          userRef: rows[0]!.chat_user_ref,
          createTime: rows[0]!.chat_time!,
        };
        const newest =
          (position ?? 0) === (entries ?? 0)
            ? rows.flatMap((row) => (row.id === null ? [] : pickEntry(toEntry(row), [])))
            : yield* entriesOf(turn);
        return { _tag: "TurnTaken", turn: { ...turn, chat, newest } } satisfies TakeResult;
      }
    }
  }, withDeadline(deadlines.storeCall));
});

/** The delay, in milliseconds, before an ask retries a locked chat. */
const lockedPause = 50;

/** For a visitor, another user's chat counts as missing, and is not locked. */
const isOwn = "(visitor is null or user_ref = visitor)";

const columns: ReadonlyArray<Column<Turn>> = [
  ...turnColumns,
  ["fingerprint", "text", ({ idempotencyKey }) => idempotencyKey?.fingerprint],
  ["visitor", "text", ({ visitor }) => visitor],
];

/** The parameter for this instance, which follows the columns. */
const instanceParameter = `$${columns.length + 2}::text`;

// Decides from locked rows, which may be newer than the snapshot. The statement never waits for a lock on a chat; it
// takes locks on keys in key order. PostgreSQL rejects it if two requests change the same chat or key, which in one
// process only an ask from the chat's visitor and one of another client can do; the batcher then sends each by itself.
//
// `overtaken`: another request claimed the key after the snapshot.
//
// `held_until` is read without the chat's lock, and `chat_until` with it. For `turnPrecedence` after a turn has ended,
// the chat is reserved for the first instance in its queue.
//
// `must_wait`: while the turn is held, an instance that is already in the queue locks nothing. Otherwise many instances
// that repeat the take could prevent the holder from locking the chat for its append.
//
// `changed`: the first instance leaves the queue. Either it takes the turn, or it did not repeat the take in time. See
// `changeOwned` in `TurnRows` for the INSERT.
//
// `key_turn`: a repeated request gets its key's entry only once synchronous standbys have the entry. A transaction that
// writes nothing would not wait for the standbys, so `pg_logical_emit_message` makes it write.
const takeStatement = batchStatement(
  columns,
  (items) => `
with request as (
  select * from ${items}
), request_row as (
  select request.*, key_row.*, snapshot.*, chat_row.*
  from request left join lateral (
    select fingerprint as key_fingerprint, turn as key_turn, turn_until as key_until, entry_id as key_entry, stopped
    from idempotency_key k ${byPrimaryKey("key", "request.key", `not ${isFree("k")}`)}
  ) key_row on true left join lateral (
    select true as has_chat, name as chat_name, user_ref as chat_user_ref, create_time as chat_time, turn_until as held_until,
      turn is not null and turn_until > statement_timestamp() and ${instanceParameter} = any (waiting) as must_wait
    from chat ${byPrimaryKey("id", "request.chat_id", isOwn)}
  ) snapshot on true left join lateral (
    select true as has_lock, position, create_time, entries, turn as chat_turn, turn_until as chat_until, waiting
    from chat ${byPrimaryKey("id", "request.chat_id", `key_fingerprint is null and not must_wait and ${isOwn}`)}
    for no key update skip locked
  ) chat_row on true
), decided as (
  select *, case
    when key_fingerprint <> fingerprint then 'key_reused'
    when stopped then 'stopped'
    when key_entry is not null then 'answered'
    when key_fingerprint is not null and key_until is null then 'key_reused'
    when chat_id is not null and has_chat is null then 'no_chat'
    when chat_id is null and not exists (select from chatbot where id = $1) then 'no_chatbot'
    when key_fingerprint is not null then 'key_held'
    when chat_id is null then 'free'
    when must_wait or chat_turn is not null and chat_until > statement_timestamp() then 'chat_held'
    when has_lock is null then 'chat_locked'
    when waiting[1] <> ${instanceParameter} and chat_until > statement_timestamp() - interval '${turnPrecedence} milliseconds' then 'chat_reserved'
    else 'free'
  end as first_decision
  from request_row
), claim as (
  select key, fingerprint, turn, chat_id from decided where first_decision = 'free' and key is not null
), ${claimedCte}, outcome as (
  select decided.*,
    case when first_decision = 'free' and decided.key is not null and claimed.key is null then 'overtaken' else first_decision end as decision
  from decided left join claimed using (key)
), changed as (
  insert into chat (chatbot_id, id, position, create_time, entries, turn, turn_until, waiting)
  select $1, chat_id, position, create_time, entries,
    case decision when 'free' then turn else chat_turn end,
    case decision when 'free' then ${leaseEnd} else chat_until end,
    case decision when 'free' then array_remove(waiting[2:], ${instanceParameter}) else waiting || ${instanceParameter} end
  from outcome where has_lock
    and (decision = 'free' or decision in ('chat_held', 'chat_reserved') and ${instanceParameter} <> all (waiting))
  on conflict (chatbot_id, id) do update set
    turn = excluded.turn, turn_until = excluded.turn_until, waiting = excluded.waiting
)
select index::int4 as index, decision,
  case when decision = 'answered' and pg_logical_emit_message(true, 'parley', '') is not null then key_turn end as key_turn,
  least(${turnLease}, greatest(1, ceil(1000 * extract(epoch from case decision
    when 'key_held' then key_until
    when 'chat_held' then coalesce(chat_until, held_until)
    when 'chat_locked' then statement_timestamp() + interval '${lockedPause} milliseconds'
    when 'chat_reserved' then chat_until + interval '${turnPrecedence} milliseconds'
  end - statement_timestamp()))))::float8 as free_in,
  entries::float8 as entries, newest.position::float8 as position, chat_name, chat_user_ref, chat_time,
  ${entryColumns("newest")}, case decision when 'answered' then metadata end as metadata, rating, comment
from outcome left join lateral (
  (select * from entry ${byPrimaryKey("id", "key_entry", "decision = 'answered'")})
  union all (
    select * from entry where decision = 'free' and chatbot_id = $1 and chat_id = outcome.chat_id
    order by position desc limit ${turnEntries}
  )
) newest on true`,
);
