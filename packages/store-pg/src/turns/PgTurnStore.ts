/**
 * The port `TurnStore`: a turn is held in the row of its chat, with the queue of the instances that wait, and in the
 * row of its idempotency key. An erasure may lock a chat for seconds. No statement here waits for that lock: a
 * statement skips a locked chat, and runs again later. So the order in which it locks chat and key causes no deadlock.
 */
import {
  AskDeadline,
  ChatNotFound,
  turnEntries,
  turnLease,
  TurnLost,
  TurnStore,
  type Entry,
  type NewEntry,
  type Overloaded,
  type StorageUnavailable,
  type Turn,
} from "@parley/core";
import { Clock, Effect, Predicate, Schedule, Stream } from "effect";
import type { ChatCreation } from "../chats/ChatCreation.ts";
import { makeWriteBatcher } from "../chats/WriteBatcher.ts";
import { endAfter, quickDeadline, timeLeft } from "../database/Lending.ts";
import type { Notifications } from "../database/Notifications.ts";
import {
  busy,
  isUnsent,
  mapLockTimeout,
  retryOnConflict,
  toStorageUnavailable,
} from "../database/PgErrors.ts";
import type { PgPools } from "../database/PgPools.ts";
import { ownSequence } from "../database/WriteState.ts";
import { batchStatement } from "../rows/BatchStatement.ts";
import { columnsOfEntry, entryColumns, newEntryColumns, toEntry } from "../rows/ChatRows.ts";
import { makeTakeTurn } from "./TakeTurn.ts";

export const makeTurnStore = Effect.fnUntraced(function* (
  pools: PgPools,
  { create }: ChatCreation,
  notifications: Notifications,
) {
  const { reads, writes } = pools;

  const entriesBefore = ({ chat, chatbot }: Turn, before: number) =>
    Effect.map(reads.query<Entry>(chatbot, olderEntries, [chatbot, chat, before]), (rows) =>
      rows.map(toEntry),
    );

  const takeTurn = yield* makeTakeTurn(pools, (turn) =>
    mapLockTimeout(entriesBefore(turn, Number.MAX_SAFE_INTEGER)),
  );

  /** Runs a statement about the rows of a turn, which changes them only if the turn holds them all. */
  const whileHeld = (turn: Turn, statement: string) =>
    writes
      .query<Outcome>(turn.chatbot, statement, [
        turn.chatbot,
        turn.chat,
        turn.id,
        turn.idempotencyKey?.key ?? null,
      ])
      .pipe(
        retryOnConflict,
        mapLockTimeout,
        Effect.flatMap(([row]) => orFail(turn, row!)),
      );

  const storeEntries = yield* makeWriteBatcher(
    (chatbot: number, appends: ReadonlyArray<Append>) => {
      const { text, values } = appendEntries(appends, chatbot);
      return writes.query<Entry & Outcome & { readonly at: number }>(chatbot, text, values).pipe(
        retryOnConflict,
        mapLockTimeout,
        // A deadline of its own: the batcher's fiber inherits that of the request that started it.
        endAfter(quickDeadline),
        Effect.map((rows) => rows.toSorted((a, b) => a.at - b.at)),
      );
    },
    { writers: 2, batch: 100 },
  );

  const appendToChat = (turn: Turn, entry: NewEntry) =>
    timeLeft.pipe(
      Effect.flatMap((left) => storeEntries(turn.chatbot, { turn, entry }, left)),
      Effect.flatMap((row) => Effect.map(orFail(turn, row), toEntry)),
    );

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
    take: takeTurn,

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
        turn.chat === null ? appendToNewChat(turn, entry) : appendToChat(turn, entry);
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
});

/** An entry to append, in a turn with a chat. */
interface Append {
  readonly turn: Turn;
  readonly entry: NewEntry;
}

/** What became of a turn; `locked`: its chat is locked for the moment. */
interface Outcome {
  readonly outcome: "held" | "locked" | "lost" | "erased";
}

/** Fails unless the turn held its rows. */
const orFail = <Row extends Outcome>(
  turn: Turn,
  row: Row,
): Effect.Effect<Row, ChatNotFound | Overloaded | TurnLost> => {
  switch (row.outcome) {
    case "held":
      return Effect.succeed(row);
    case "locked":
      return Effect.fail(busy);
    case "lost":
      return Effect.fail(new TurnLost());
    case "erased":
      return Effect.fail(new ChatNotFound({ chatId: turn.chat! }));
  }
};

/** Retries for so many milliseconds. */
const retriesFor = (duration: number) =>
  Schedule.min([Schedule.exponential(5), Schedule.spaced(100)]).pipe(
    Schedule.jittered,
    Schedule.upTo({ duration }),
  );

const leaseEnd = `clock_timestamp() + interval '${turnLease} milliseconds'`;

const olderEntries = `
select ${entryColumns("entry")} from entry
where chatbot_id = $1 and chat_id = $2::int8 and id < $3::int8 and position < coalesce(
  (select position from entry where chatbot_id = $1 and chat_id = $2::int8 and id = $3::int8), $3::int8)
order by position desc limit ${turnEntries}`;

/**
 * SQL for what became of a turn. `hasChat`, `hasKey`: whether the statement has locked the chat and the key in this
 * turn.
 */
const outcomeOf = (
  turn: Readonly<Record<"chat" | "turn" | "key" | "hasChat" | "hasKey", string>>,
) => `
case
  when (${turn.chat} is null or ${turn.hasChat}) and (${turn.key} is null or ${turn.hasKey}) then 'held'
  when ${turn.chat} is null or ${turn.hasChat} then 'lost'
  else coalesce((
    select case when chat.turn = ${turn.turn} then 'locked' else 'lost' end
    from chat where chatbot_id = $1 and id = ${turn.chat}
  ), 'erased')
end as outcome`;

const notify = (chat: string) =>
  `pg_notify(current_schema(), concat_ws(':', 'freed', $1::int4, ${chat}))`;

// Stores the entries of turns, each once. Waits for keys in their order, and skips a locked chat. Finds rows as the
// statement of takes does.
const appendEntries = batchStatement<Append>(
  [
    ["chat_id", "int8", ({ turn }) => BigInt(turn.chat!)],
    ["turn", "text", ({ turn }) => turn.id],
    ["key", "text", ({ turn }) => turn.idempotencyKey?.key],
    ...columnsOfEntry(({ entry }: Append) => entry),
  ],
  2,
  (items) => `
with request as (
  select * from ${items}
), locked as (
  select request.*, key_row.*, chat_row.*
  from (select * from request order by key, chat_id) request left join lateral (
    select true as has_key from idempotency_key
    where chatbot_id = $1 and key = request.key and turn = request.turn and entry_id is null
    offset 0 for update
  ) key_row on true left join lateral (
    select position as chat_position, create_time as chat_time, entries + 1 as entries, waiting,
      greatest(last_entry_time, create_time, date_trunc('milliseconds', clock_timestamp())) as entry_time
    from chat where chatbot_id = $1 and id = request.chat_id and turn = request.turn
    offset 0 for no key update skip locked
  ) chat_row on true
), held as (
  select * from locked where waiting is not null and (key is null or has_key)
), freed as (
  insert into chat (chatbot_id, id, position, create_time, entries, last_entry_time, turn_until)
  select $1, chat_id, chat_position, chat_time, entries, entry_time, clock_timestamp() from held
  on conflict (chatbot_id, id) do update set
    turn = null, turn_until = excluded.turn_until, entries = excluded.entries, last_entry_time = excluded.last_entry_time
), stored as (
  insert into entry (chatbot_id, chat_id, id, position, create_time, ${newEntryColumns})
  select $1, chat_id, nextval(${ownSequence("entry_id")}), entries, entry_time, ${newEntryColumns} from held
  returning *
), settled as (
  insert into idempotency_key (chatbot_id, key, fingerprint, made_at, chat_id, entry_id)
  select $1, key, '', clock_timestamp(), chat_id, stored.id from held join stored using (chat_id) where key is not null
  on conflict (chatbot_id, key) do update set
    made_at = excluded.made_at, turn_until = null, chat_id = excluded.chat_id, entry_id = excluded.entry_id
)
select at::int4 as at, ${entryColumns("stored")},
  ${outcomeOf({ chat: "locked.chat_id", turn: "locked.turn", key: "locked.key", hasChat: "waiting is not null", hasKey: "has_key is not null" })},
  case when stored.id is not null and cardinality(waiting) > 0 then ${notify("locked.chat_id")} end as notified
from locked left join stored on stored.chat_id = locked.chat_id and stored.position = locked.entries`,
);

/**
 * CTEs that lock the rows of a turn, but skip a locked chat: `key_row` is the row of the key, `chat_row` that of the
 * chat. `held` has a row if the turn holds them all.
 */
const lockedTurn = `
key_row as (
  select from idempotency_key where chatbot_id = $1 and key = $4::text and turn = $3 and entry_id is null
  for update
), chat_row as (
  select from chat where chatbot_id = $1 and id = $2::int8 and turn = $3 for no key update skip locked
), held as (
  select where ($2::int8 is null or exists (select from chat_row)) and ($4::text is null or exists (select from key_row))
)`;

const outcome = outcomeOf({
  chat: "$2::int8",
  turn: "$3",
  key: "$4::text",
  hasChat: "exists (select from chat_row)",
  hasKey: "exists (select from key_row)",
});

// Both or none: an ask that took over one of them must not wait for the other.
const renewTurn = `
with ${lockedTurn}, chats as (
  update chat set turn_until = ${leaseEnd}
  where chatbot_id = $1 and id = $2::int8 and turn = $3 and exists (select from held)
), keys as (
  update idempotency_key set turn_until = ${leaseEnd}
  where chatbot_id = $1 and key = $4::text and turn = $3 and entry_id is null and exists (select from held)
)
select ${outcome}`;

const releaseTurn = `
with ${lockedTurn}, keys as (
  delete from idempotency_key
  where chatbot_id = $1 and key = $4::text and turn = $3 and entry_id is null and exists (select from held)
), freed as (
  update chat set turn = null, turn_until = clock_timestamp()
  where chatbot_id = $1 and id = $2::int8 and turn = $3 and exists (select from held)
  returning cardinality(waiting) > 0 as awaited
)
select ${outcome}, (select ${notify("$2::int8")} from freed where awaited) as notified`;
