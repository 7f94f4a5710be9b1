/**
 * The port `TurnStore`: a turn is held in the row of its chat, with the queue of the instances that wait, and in the
 * row of its idempotency key. An erasure may lock a chat for seconds. No statement here waits for that lock: a
 * statement skips a locked chat, and runs again later. So the order in which it locks chat and key causes no deadlock.
 */
import {
  AskDeadline,
  ChatNotFound,
  IdempotencyKeyReused,
  turnEntries,
  turnLease,
  TurnLost,
  turnPrecedence,
  TurnStore,
  type Entry,
  type NewEntry,
  type StorageUnavailable,
  type Taken,
  type Turn,
} from "@parley/core";
import { Clock, Effect, Predicate, Schedule, Stream } from "effect";
import type { ChatCreation } from "../chats/ChatCreation.ts";
import { endAfter, quickDeadline } from "../database/Lending.ts";
import type { Notifications } from "../database/Notifications.ts";
import {
  busy,
  isUnsent,
  mapLockTimeout,
  retryOnConflict,
  toChatbotNotFound,
  toStorageUnavailable,
} from "../database/PgErrors.ts";
import type { PgPools } from "../database/PgPools.ts";
import { ownSequence } from "../database/WriteState.ts";
import {
  entryColumns,
  newEntryColumns,
  newEntryParameters,
  newEntryValues,
  toEntry,
} from "../rows/ChatRows.ts";
import { claimWanted, isFree } from "../rows/IdempotencyKeys.ts";

export const makeTurnStore = (
  { reads, writable, writes }: PgPools,
  { create }: ChatCreation,
  notifications: Notifications,
): TurnStore["Service"] => {
  /** Identifies this instance in the queues of chats. */
  const instance = crypto.randomUUID();

  const entriesBefore = ({ chat, chatbot }: Turn, before: number) =>
    Effect.map(reads.query<Entry>(chatbot, olderEntries, [chatbot, chat, before]), (rows) =>
      rows.map(toEntry),
    );

  /** Runs a statement about the rows of a turn, which changes them only if the turn holds them all. */
  const whileHeld = Effect.fnUntraced(function* <Row extends object>(
    turn: Turn,
    statement: string,
    more: ReadonlyArray<unknown> = [],
  ) {
    const [row] = yield* writes
      .query<Row & { readonly state: "held" | "locked" | "lost" | "erased" }>(
        turn.chatbot,
        statement,
        [...rowsOf(turn), ...more],
      )
      .pipe(retryOnConflict, mapLockTimeout);
    switch (row!.state) {
      case "held":
        return row!;
      case "locked":
        return yield* busy;
      case "lost":
        return yield* new TurnLost();
      case "erased":
        return yield* new ChatNotFound({ chatId: turn.chat! });
    }
  });

  const appendToNewChat = Effect.fnUntraced(function* (
    { chatbot, id, idempotencyKey }: Turn,
    entry: NewEntry,
  ) {
    const keyed = idempotencyKey && { ...idempotencyKey, turn: id, claims: false };
    const created = yield* create(chatbot, { name: null, userRef: null, entry, keyed });
    if (created === null) return yield* new TurnLost();
    const { keyId: _, usage: __, ...stored } = entry;
    return {
      ...stored,
      id: created.entryId!,
      chatId: created.id,
      createTime: created.createTime,
    };
  });

  return TurnStore.of({
    take: Effect.fnUntraced(
      function* (chatbot, chat, idempotencyKey) {
        const turn = { id: crypto.randomUUID(), chatbot, chat, idempotencyKey, newest: [] };
        if (chat === null && idempotencyKey === null) {
          yield* writable;
          return { _tag: "Turn", turn } satisfies Taken;
        }
        const fingerprint = idempotencyKey?.fingerprint ?? null;
        const take = idempotencyKey === null ? takeChat : takeBoth;
        const rows = yield* writes
          .query<TakenRow>(chatbot, take, [...rowsOf(turn), fingerprint, instance])
          .pipe(Effect.repeat({ while: ([row]) => row!.outran }), toChatbotNotFound(chatbot));
        const first = rows[0]!;
        if (first.fingerprint !== null && first.fingerprint !== fingerprint) {
          return yield* new IdempotencyKeyReused({ key: idempotencyKey!.key });
        }
        const entries = rows.flatMap((row) => (row.id === null ? [] : toEntry(row)));
        if (first.answered_in !== null) {
          return { _tag: "Done", entry: entries[0]!, turn: first.answered_in } satisfies Taken;
        }
        if (!first.exists) return yield* new ChatNotFound({ chatId: chat! });
        if (first.held_by !== null) {
          return { _tag: "Held", by: first.held_by, forMillis: first.for_millis } satisfies Taken;
        }
        // An append may have committed between the snapshot and the turn. A second read is exact, now that the turn is
        // ours.
        const isCurrent = (first.position ?? 0n) === (first.entries ?? 0n);
        const newest = isCurrent ? entries : yield* entriesBefore(turn, Number.MAX_SAFE_INTEGER);
        return { _tag: "Turn", turn: { ...turn, newest } } satisfies Taken;
      },
      retryOnConflict,
      mapLockTimeout,
      endAfter(quickDeadline),
    ),

    earlier: (turn, before) => toStorageUnavailable(entriesBefore(turn, before)),

    renew: (turn) =>
      whileHeld(turn, renewTurn).pipe(
        Effect.as(true),
        Effect.catchTags({
          TurnLost: () => Effect.succeed(false),
          // A locked chat is renewed the next time.
          Overloaded: () => Effect.succeed(true),
        }),
        endAfter(quickDeadline),
      ),

    /**
     * The answer is paid for, so a failed append is tried again until the ask's deadline. The last attempt ends at most
     * five seconds later. An attempt with an unknown outcome may have stored the entry. Then it also ended the turn, so
     * that no later attempt stores the entry again. A turn without chat and key has no row that could show this, and
     * its append is tried once.
     */
    append: Effect.fnUntraced(function* (turn, entry) {
      const left = (yield* AskDeadline) - (yield* Clock.currentTimeMillis);
      const millis = left === Infinity ? turnLease : Math.max(0, left);
      const hasRow = turn.chat !== null || turn.idempotencyKey !== null;
      let unknown: StorageUnavailable | null = null;
      const attempt: ReturnType<TurnStore["Service"]["append"]> =
        turn.chat === null
          ? appendToNewChat(turn, entry)
          : Effect.map(whileHeld<Entry>(turn, appendEntry, newEntryValues(entry)), toEntry);
      return yield* attempt.pipe(
        Effect.tapError((error) =>
          Effect.sync(() => {
            if (error._tag === "StorageUnavailable" && !isUnsent(error)) unknown = error;
          }),
        ),
        Effect.retry({
          while: (error) =>
            error._tag === "Overloaded" ||
            (error._tag === "StorageUnavailable" && (hasRow || isUnsent(error))),
          schedule: retriesFor(millis),
        }),
        Effect.catchTag("TurnLost", (lost) => Effect.fail(unknown ?? lost)),
        endAfter(millis + quickDeadline),
      );
    }),

    release: (turn) =>
      whileHeld(turn, releaseTurn).pipe(
        // For as long as the lease of a turn without renewals.
        Effect.retry({
          while: Predicate.isTagged("Overloaded"),
          schedule: retriesFor(turnLease),
        }),
        Effect.catchTag(["ChatNotFound", "TurnLost", "Overloaded"], () => Effect.void),
        Effect.asVoid,
      ),

    freed: Stream.map(notifications("freed"), (freed) => {
      if (freed === null) return null;
      const [chatbot, chat] = freed.split(":");
      return { chatbot: Number(chatbot), chat: Number(chat) };
    }),
  });
};

/** The parameters `$1` to `$4` of statements about the rows of a turn: its chatbot, chat, id and key. */
const rowsOf = ({ chat, chatbot, id, idempotencyKey }: Turn) => [
  chatbot,
  chat,
  id,
  idempotencyKey?.key ?? null,
];

/** Retries for so many milliseconds. */
const retriesFor = (duration: number) =>
  Schedule.min([Schedule.exponential(5), Schedule.spaced(100)]).pipe(
    Schedule.jittered,
    Schedule.upTo({ duration }),
  );

/** The outcome of a take, with an entry: that of the key, or one of the chat's newest. */
type TakenRow = {
  /** Whether another request claimed the key after the snapshot. */
  readonly outran: boolean;
  /** The fingerprint of the key's earlier request. */
  readonly fingerprint: string | null;
  /** The turn that stored the key's entry. */
  readonly answered_in: string | null;
  readonly exists: boolean;
  readonly held_by: "chat" | "key" | null;
  readonly for_millis: number;
  /** The number of the chat's entries. */
  readonly entries: bigint | null;
  readonly position: bigint | null;
} & (Entry | { readonly id: null });

/** Milliseconds after which an ask tries a locked chat again. */
const lockedPause = 50;

const leaseEnd = `clock_timestamp() + interval '${turnLease} milliseconds'`;

// Takes chat `$2` and key `$4`, or neither, for the turn `$3`; `$5` is the fingerprint of the request, `$6` this
// instance. `known` is the row of the key if an earlier request has the key, and `seen` the chat's row in the snapshot.
// `free` is the chat's row once this statement has locked it; it has none if another transaction holds the lock, or if
// `known` or `seen` has decided. `is_ours`: this instance may take the turn. `claimed` and `taken` are the key and the
// chat that the statement has taken.
//
// The statement decides by the locked rows, which may be newer than its snapshot. The first instance of the queue
// leaves it: either it takes the turn, or it did not come in time and another takes it. While the turn is held, an
// instance that is already in the queue locks nothing: many that ask again would keep the holder from the lock for its
// append. A turn whose lease ended loses its key with its chat; its process may have been killed. PostgreSQL prepares
// for each table that a CTE writes, so a take without a key has a text of its own.
const takeTurn = (isKeyed: boolean) => `
with known as (
  select fingerprint, turn, turn_until, entry_id from idempotency_key k
  where ${isKeyed ? `chatbot_id = $1 and key = $4::text and not ${isFree("k")}` : "false"}
), seen as (
  select turn_until, turn is not null and turn_until > clock_timestamp() and $6 = any (waiting) as waits
  from chat where chatbot_id = $1 and id = $2::int8
), free as (
  select turn, turn_until, waiting, (turn is null or turn_until <= clock_timestamp()) and (
    cardinality(waiting) = 0 or waiting[1] = $6
    or turn_until <= clock_timestamp() - interval '${turnPrecedence} milliseconds') as is_ours
  from chat where chatbot_id = $1 and id = $2::int8
    and not exists (select from known) and not exists (select from seen where waits)
  for no key update skip locked
), wanted as (
  select $4::text as key, $5::text as fingerprint, $3::text as turn
  where $4::text is not null and not exists (select from known)
    and ($2::int8 is null or exists (select from free where is_ours))
), ${isKeyed ? claimWanted : "claimed as (select from wanted)"}, taken as (
  update chat set
    turn = $3::text, turn_until = ${leaseEnd}, waiting = array_remove(chat.waiting[2:], $6)
  from free where chatbot_id = $1 and id = $2::int8 and is_ours
    and ($4::text is null or exists (select from claimed))
  returning entries
), queued as (
  update chat set waiting = chat.waiting || $6::text
  from free where chatbot_id = $1 and id = $2::int8 and is_ours is not true and $6 <> all (free.waiting)
), forgotten as (
  delete from idempotency_key
  where exists (select from taken) and (select turn from free) is not null
    and chatbot_id = $1 and turn = (select turn from free) and key is distinct from $4 and chat_id is null
)
select
  exists (select from wanted) and not exists (select from claimed) as outran,
  known.fingerprint,
  case when known.entry_id is not null then known.turn end as answered_in,
  $2::int8 is null or exists (select from seen) as exists,
  case
    when known.fingerprint is not null then 'key'
    when $2::int8 is not null and taken.entries is null then 'chat'
  end as held_by,
  least(${turnLease}, greatest(1, ceil(case
    when known.fingerprint is not null then extract(epoch from known.turn_until - clock_timestamp()) * 1000
    when (select waits from seen) then extract(epoch from (select turn_until from seen) - clock_timestamp()) * 1000
    when free.waiting is null then ${lockedPause}
    else extract(epoch from free.turn_until - clock_timestamp()) * 1000
      + case when free.turn is null or free.turn_until <= clock_timestamp() then ${turnPrecedence} else 0 end
  end)))::float8 as for_millis,
  taken.entries, newest.position, ${entryColumns("newest")}
from (values (1)) one
left join known on true
left join free on true
left join taken on true
left join lateral (
  ${isKeyed ? "select * from entry where chatbot_id = $1 and id = known.entry_id union all" : ""} (
    select * from entry
    where taken.entries is not null and chatbot_id = $1 and chat_id = $2::int8
    order by position desc limit ${turnEntries}
  )
) newest on true
order by newest.position desc`;
const takeChat = takeTurn(false);
const takeBoth = takeTurn(true);

const olderEntries = `
select ${entryColumns("entry")} from entry
where chatbot_id = $1 and chat_id = $2::int8 and id < $3::int8 and position < coalesce(
  (select position from entry where chatbot_id = $1 and chat_id = $2::int8 and id = $3::int8), $3::int8)
order by position desc limit ${turnEntries}`;

/**
 * CTEs that lock the rows of a turn, but skip a locked chat: `ours` is the row of the key, `free` that of the chat.
 * `held` has a row if the turn holds them all.
 */
const lockedTurn = `
ours as (
  select from idempotency_key where chatbot_id = $1 and key = $4::text and turn = $3 and entry_id is null
  for update
), free as (
  select from chat where chatbot_id = $1 and id = $2::int8 and turn = $3 for no key update skip locked
), held as (
  select where ($2::int8 is null or exists (select from free)) and ($4::text is null or exists (select from ours))
)`;

/** What became of the turn, after {@link lockedTurn}; `locked`: its chat is locked for the moment. */
const state = `
case
  when exists (select from held) then 'held'
  when $2::int8 is null or exists (select from free) then 'lost'
  else coalesce((
    select case when turn = $3 then 'locked' else 'lost' end from chat where chatbot_id = $1 and id = $2::int8
  ), 'erased')
end as state`;

/** Notifies the instances that wait for the chat of a CTE `freed (awaited)`. */
const notifyFreed = `
(select pg_notify(current_schema(), concat_ws(':', 'freed', $1::int4, $2::int8)) from freed where awaited)`;

const appendEntry = `
with ${lockedTurn}, freed as (
  update chat set
    turn = null, turn_until = clock_timestamp(), entries = entries + 1,
    last_entry_time = greatest(last_entry_time, create_time, date_trunc('milliseconds', clock_timestamp()))
  where chatbot_id = $1 and id = $2::int8 and turn = $3 and exists (select from held)
  returning entries, last_entry_time, cardinality(waiting) > 0 as awaited
), made as (
  insert into entry (chatbot_id, chat_id, id, position, create_time, ${newEntryColumns})
  select $1, $2::int8, nextval(${ownSequence("entry_id")}), entries, last_entry_time, ${newEntryParameters(5)}
  from freed
  returning *
), settled as (
  update idempotency_key set made_at = clock_timestamp(), turn_until = null, chat_id = made.chat_id, entry_id = made.id
  from made where idempotency_key.chatbot_id = $1 and idempotency_key.key = $4::text
)
select ${entryColumns("made")}, ${state}, ${notifyFreed} as notified
from (values (1)) one left join made on true`;

// Both or none: an ask that took over one of them must not wait for the other.
const renewTurn = `
with ${lockedTurn}, chats as (
  update chat set turn_until = ${leaseEnd}
  where chatbot_id = $1 and id = $2::int8 and turn = $3 and exists (select from held)
), keys as (
  update idempotency_key set turn_until = ${leaseEnd}
  where chatbot_id = $1 and key = $4::text and turn = $3 and entry_id is null and exists (select from held)
)
select ${state}`;

const releaseTurn = `
with ${lockedTurn}, keys as (
  delete from idempotency_key
  where chatbot_id = $1 and key = $4::text and turn = $3 and entry_id is null and exists (select from held)
), freed as (
  update chat set turn = null, turn_until = clock_timestamp()
  where chatbot_id = $1 and id = $2::int8 and turn = $3 and exists (select from held)
  returning cardinality(waiting) > 0 as awaited
)
select ${state}, ${notifyFreed} as notified`;
