/**
 * The port `TurnStore`: a turn is held in the row of its chat, with the queue of the instances that wait, and in the
 * row of its idempotency key. An erasure may lock a chat for seconds, so no statement waits for that lock: it skips the
 * row, and runs again later.
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
  type ChatbotNotFound,
  type Entry,
  type NewEntry,
  type Overloaded,
  type IdempotencyKey,
  type StorageUnavailable,
  type Taken,
  type Turn,
} from "@parley/core";
import { Clock, Data, Effect, Predicate, Schedule, Stream } from "effect";
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
import { texts } from "../database/PgParams.ts";
import type { PgPools } from "../database/PgPools.ts";
import {
  entryColumns,
  newEntryColumns,
  newEntryParameters,
  newEntryValues,
  toEntry,
  type EntryRow,
} from "../rows/ChatRows.ts";
import { claim, deleteClaims, lockKey } from "../rows/IdempotencyKeys.ts";

const held = (by: "chat" | "key", forMillis: number | null): Taken => ({
  _tag: "Held",
  by,
  forMillis: Math.max(1, Math.min(turnLease, Math.ceil(forMillis ?? turnLease))),
});

/** Milliseconds after which an ask tries a locked chat again. */
const lockedPause = 50;

/** Another request claimed the key meanwhile. */
class KeyLost extends Data.TaggedError("KeyLost") {}

export const makeTurnStore = Effect.fnUntraced(function* (
  { reads, writes }: PgPools,
  { create }: ChatCreation,
  notifications: Notifications,
) {
  const scope = yield* Effect.scope;
  /** Identifies this instance in the queues of chats. */
  const instance = crypto.randomUUID();

  /** In the background: instances that wait poll, too. */
  const notify = (chatbot: number, chat: number) =>
    reads
      .query("operator", "select pg_notify(current_schema(), $1)", [`freed:${chatbot}:${chat}`])
      .pipe(Effect.ignore, Effect.forkIn(scope));

  const entriesBefore = (chatbot: number, chat: number, before: number) =>
    Effect.map(
      reads.query<EntryRow>(chatbot, olderEntries, [chatbot, chat, before, turnEntries]),
      (rows) => rows.map(toEntry),
    );

  const takeChat = Effect.fnUntraced(function* (
    chatbot: number,
    chatId: number,
    idempotencyKey: IdempotencyKey | null,
  ) {
    const id = crypto.randomUUID();
    const rows = yield* writes.query<TakenRow>(chatbot, takeTurn, [
      chatbot,
      chatId,
      id,
      turnLease,
      turnEntries,
      instance,
      turnPrecedence,
    ]);
    const first = rows[0]!;
    if (first.entries === null) {
      if (!first.exists) return yield* new ChatNotFound({ chatId });
      return held("chat", first.for_millis);
    }
    // The turn whose lease ended loses its key, too; its process may have been killed.
    if (first.before !== null) {
      const forget = writes.query(chatbot, deleteClaims, [chatbot, texts([first.before])]);
      // Outside a transaction the turn is taken already.
      yield* idempotencyKey === null ? Effect.ignore(forget) : forget;
    }
    // An append may have committed between the snapshot and the turn. A second read is exact, now that the turn is
    // ours.
    const isCurrent = (first.position ?? 0n) === first.entries;
    const newest = isCurrent
      ? rows.flatMap((row) => (row.id === null ? [] : toEntry(row)))
      : yield* entriesBefore(chatbot, chatId, Number.MAX_SAFE_INTEGER);
    return {
      _tag: "Turn",
      turn: { id, chatbot, chat: chatId, idempotencyKey, newest },
    } satisfies Taken;
  });

  /** The result of `take` for a key that is not free; `null` for a free key. */
  const findKey = Effect.fnUntraced(function* (
    chatbot: number,
    chat: number | null,
    { fingerprint, key }: IdempotencyKey,
  ) {
    const [row] = yield* writes.query<KeyRow>(chatbot, lockKey, [chatbot, key, chat]);
    if (row === undefined || row.free) return null;
    if (row.fingerprint !== fingerprint) return yield* new IdempotencyKeyReused({ key });
    if (row.id !== null) {
      return { _tag: "Done", entry: toEntry(row), turn: row.turn! } satisfies Taken;
    }
    if (!row.exists) return yield* new ChatNotFound({ chatId: chat! });
    return held("key", row.for_millis);
  });

  /** Returns whether the key was free. */
  const claimKey = (turn: Turn, idempotencyKey: IdempotencyKey) => {
    const { text, values } = claim(turn.chatbot, [{ ...idempotencyKey, turn: turn.id }]);
    return writes.query(turn.chatbot, text, values).pipe(
      Effect.map((claimed) => claimed.length > 0),
      toChatbotNotFound(turn.chatbot),
    );
  };

  /** Claims the key last: `Held` by `chat` keeps its place in the queue without it. */
  const takeBoth = (chatbot: number, chat: number, idempotencyKey: IdempotencyKey) =>
    writes.transaction(
      chatbot,
      Effect.gen(function* () {
        const found = yield* findKey(chatbot, chat, idempotencyKey);
        if (found !== null) return found;
        const taken = yield* takeChat(chatbot, chat, idempotencyKey);
        if (taken._tag !== "Turn") return taken;
        return (yield* claimKey(taken.turn, idempotencyKey)) ? taken : yield* new KeyLost();
      }),
    );

  const takeWithKey = Effect.fnUntraced(
    function* (chatbot: number, chat: number | null, idempotencyKey: IdempotencyKey) {
      if (chat !== null) return yield* takeBoth(chatbot, chat, idempotencyKey);
      const taken = withoutRow(chatbot, idempotencyKey);
      if (yield* claimKey(taken.turn, idempotencyKey)) return taken;
      return (yield* findKey(chatbot, null, idempotencyKey)) ?? (yield* new KeyLost());
    },
    Effect.retry({ while: Predicate.isTagged("KeyLost"), times: 3 }),
    Effect.catchTag("KeyLost", () => Effect.succeed(held("key", 0))),
  );

  /** Why a statement of the turn found nothing: `busy` if the chat is locked. */
  const whyNot = Effect.fnUntraced(function* (turn: Turn) {
    const [row] = yield* writes.query<{ readonly exists: boolean; readonly ours: boolean }>(
      turn.chatbot,
      lookAtTurn,
      rowsOf(turn),
    );
    if (!row!.exists) return new ChatNotFound({ chatId: turn.chat! });
    return row!.ours ? busy : new TurnLost();
  });

  const appendToChat = Effect.fnUntraced(function* (turn: Turn, entry: NewEntry) {
    const values = [...rowsOf(turn), ...newEntryValues(entry)];
    const [row] = yield* writes
      .query<EntryRow & { readonly awaited: boolean }>(turn.chatbot, appendEntry, values)
      .pipe(retryOnConflict);
    if (row === undefined) return yield* yield* whyNot(turn);
    if (row.awaited) yield* notify(turn.chatbot, turn.chat!);
    return toEntry(row);
  }, mapLockTimeout);

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
        if (idempotencyKey !== null) return yield* takeWithKey(chatbot, chat, idempotencyKey);
        return chat === null ? withoutRow(chatbot, null) : yield* takeChat(chatbot, chat, null);
      },
      retryOnConflict,
      mapLockTimeout,
      endAfter(quickDeadline),
    ),

    earlier: ({ chat, chatbot }, before) =>
      chat === null
        ? Effect.succeed([])
        : toStorageUnavailable(entriesBefore(chatbot, chat, before)),

    renew: (turn) =>
      Effect.gen(function* () {
        const values = [...rowsOf(turn), turnLease];
        const [row] = yield* retryOnConflict(
          writes.query<{ readonly ours: boolean }>(turn.chatbot, renewTurn, values),
        );
        if (row!.ours) return true;
        const reason = yield* whyNot(turn);
        if (reason._tag === "ChatNotFound") return yield* reason;
        // A locked chat is renewed the next time.
        return reason === busy;
      }).pipe(toStorageUnavailable, endAfter(quickDeadline)),

    /**
     * The answer is paid for, so a failed append is tried again until the ask's deadline; the last attempt ends at most
     * five seconds later. An attempt with an unknown outcome may have stored the entry. Then it also ended the turn, so
     * that no later attempt stores the entry again. A turn without chat and key has no row that could show this, and
     * its append is tried once.
     */
    append: (turn, entry) => {
      let unknown: StorageUnavailable | null = null;
      const hasRow = turn.chat !== null || turn.idempotencyKey !== null;
      const attempt: Effect.Effect<
        Entry,
        TurnLost | ChatbotNotFound | ChatNotFound | Overloaded | StorageUnavailable
      > = turn.chat === null ? appendToNewChat(turn, entry) : appendToChat(turn, entry);
      const retried = (schedule: Schedule.Schedule<unknown>) =>
        attempt.pipe(
          Effect.tapError((error) =>
            Effect.sync(() => {
              if (error._tag === "StorageUnavailable" && !isUnsent(error)) unknown = error;
            }),
          ),
          Effect.retry({
            while: (error) =>
              error._tag === "Overloaded" ||
              (error._tag === "StorageUnavailable" && (hasRow || isUnsent(error))),
            schedule,
          }),
          Effect.catchTag("TurnLost", (lost) => Effect.fail(unknown ?? lost)),
        );
      return Effect.flatMap(
        Effect.all([AskDeadline, Clock.currentTimeMillis]),
        ([deadline, now]) => {
          const millis = deadline === Infinity ? turnLease : Math.max(1_000, deadline - now);
          return retried(retriesFor(millis)).pipe(endAfter(millis + quickDeadline));
        },
      );
    },

    release: (turn) =>
      turn.chat === null && turn.idempotencyKey === null
        ? Effect.void
        : Effect.gen(function* () {
            const [row] = yield* retryOnConflict(
              writes.query<{ readonly awaited: boolean | null; readonly locked: boolean }>(
                turn.chatbot,
                releaseTurn,
                rowsOf(turn),
              ),
            );
            if (row!.awaited === true) yield* notify(turn.chatbot, turn.chat!);
            if (row!.locked) return yield* busy;
          }).pipe(
            Effect.retry({ while: Predicate.isTagged("Overloaded"), schedule: forALease }),
            Effect.catchTag("Overloaded", () => Effect.void),
            toStorageUnavailable,
          ),

    freed: Stream.map(notifications("freed"), (freed) => {
      if (freed === null) return null;
      const [chatbot, chat] = freed.split(":");
      return { chatbot: Number(chatbot), chat: Number(chat) };
    }),
  });
});

/** The parameters `$1` to `$4` of statements about the rows of a turn. */
const rowsOf = ({ chat, chatbot, id, idempotencyKey }: Turn) => [
  chatbot,
  chat,
  id,
  idempotencyKey?.key ?? null,
];

/** A turn in a new chat. */
const withoutRow = (chatbot: number, idempotencyKey: IdempotencyKey | null) =>
  ({
    _tag: "Turn",
    turn: { id: crypto.randomUUID(), chatbot, chat: null, idempotencyKey, newest: [] },
  }) satisfies Taken;

/** Retries for so many milliseconds. */
const retriesFor = (duration: number) =>
  Schedule.min([Schedule.exponential(5), Schedule.spaced(100)]).pipe(
    Schedule.jittered,
    Schedule.upTo({ duration }),
  );

/** Retries for as long as the lease of a turn without renewals. */
const forALease = retriesFor(turnLease);

type TakenRow = {
  readonly exists: boolean;
  /** The turn before, whose lease ended. */
  readonly before: string | null;
  /** `null` if the turn was not taken. */
  readonly entries: bigint | null;
  readonly for_millis: number | null;
  readonly position: bigint | null;
} & (EntryRow | { readonly id: null });

type KeyRow = {
  readonly exists: boolean;
  readonly free: boolean;
  readonly fingerprint: string;
  readonly turn: string | null;
  readonly for_millis: number | null;
} & (EntryRow | { readonly id: null });

// The statement decides by the locked row, which may be newer than its snapshot. The first instance of the queue leaves
// it: either it takes the turn, or it did not come in time and another takes it. While the turn is held, an instance
// that is already in the queue locks nothing: many that ask again would keep the holder from the lock for its append.
const takeTurn = `
with seen as (
  select turn_until, turn is not null and turn_until > clock_timestamp() and $6 = any (waiting) as waits
  from chat where chatbot_id = $1 and id = $2::int8
), free as (
  select turn, turn_until, waiting, (turn is null or turn_until <= clock_timestamp()) and (
    cardinality(waiting) = 0 or waiting[1] = $6
    or turn_until <= clock_timestamp() - $7::int4 * interval '1 millisecond') as is_ours
  from chat where chatbot_id = $1 and id = $2::int8 and not exists (select from seen where waits)
  for no key update skip locked
), taken as (
  update chat set
    turn = $3::text,
    turn_until = clock_timestamp() + $4::int4 * interval '1 millisecond',
    waiting = array_remove(chat.waiting[2:], $6)
  from free where chatbot_id = $1 and id = $2::int8 and is_ours
  returning entries
), queued as (
  update chat set waiting = chat.waiting || $6::text
  from free where chatbot_id = $1 and id = $2::int8 and is_ours is not true and $6 <> all (free.waiting)
)
select exists (select from seen) as exists, free.turn as before, taken.entries,
  case when (select waits from seen)
      then greatest(1, extract(epoch from (select turn_until from seen) - clock_timestamp()) * 1000)
    when free.waiting is null then ${lockedPause}
    else extract(epoch from free.turn_until - clock_timestamp()) * 1000
    + case when free.turn is null or free.turn_until <= clock_timestamp() then $7::int4 else 0 end
  end::float8 as for_millis, newest.*
from (values (1)) one
left join free on true
left join taken on true
left join lateral (
  select ${entryColumns}, position from entry
  where taken.entries is not null and chatbot_id = $1 and chat_id = $2::int8
  order by position desc limit $5::int8
) newest on true
order by newest.position desc`;

const olderEntries = `
select ${entryColumns} from entry
where chatbot_id = $1 and chat_id = $2::int8 and id < $3::int8 and position < coalesce(
  (select position from entry where chatbot_id = $1 and chat_id = $2::int8 and id = $3::int8), $3::int8)
order by position desc limit $4::int8`;

/** Locks the rows of a turn, but skips a locked chat. Chat `$2` or key `$4` may be null. */
const lockedTurn = `
ours as (
  select from idempotency_key where chatbot_id = $1 and key = $4::text and turn = $3 and entry_id is null
  for update
), free as (
  select from chat where chatbot_id = $1 and id = $2::int8 and turn = $3 for no key update skip locked
), held as (
  select where ($2::int8 is null or exists (select from free)) and ($4::text is null or exists (select from ours))
)`;

const appendEntry = `
with ${lockedTurn}, mine as (
  update chat set
    turn = null, turn_until = clock_timestamp(), entries = entries + 1,
    last_entry_time = greatest(last_entry_time, create_time, date_trunc('milliseconds', clock_timestamp()))
  where chatbot_id = $1 and id = $2::int8 and turn = $3 and exists (select from held)
  returning entries, last_entry_time, cardinality(waiting) > 0 as awaited
), made as (
  insert into entry (chatbot_id, chat_id, id, position, create_time, ${newEntryColumns})
  select $1, $2::int8, nextval('entry_id'), entries, last_entry_time, ${newEntryParameters(5)}
  from mine
  returning ${entryColumns}
), settled as (
  update idempotency_key set made_at = clock_timestamp(), turn_until = null, chat_id = made.chat_id, entry_id = made.id
  from made where idempotency_key.chatbot_id = $1 and idempotency_key.key = $4::text
)
select made.*, awaited from made cross join mine`;

/** Whether chat `$2` exists, and whether turn `$3` holds it and key `$4`. */
const lookAtTurn = `
select $2::int8 is null or exists (select from chat where chatbot_id = $1 and id = $2::int8) as exists,
  ($2::int8 is null or exists (select from chat where chatbot_id = $1 and id = $2::int8 and turn = $3))
    and ($4::text is null or exists (
      select from idempotency_key where chatbot_id = $1 and key = $4::text and turn = $3 and entry_id is null
    )) as ours`;

// Both or none: an ask that took over one of them must not wait for the other.
const renewTurn = `
with ${lockedTurn}, chats as (
  update chat set turn_until = clock_timestamp() + $5::int4 * interval '1 millisecond'
  where chatbot_id = $1 and id = $2::int8 and turn = $3 and exists (select from held)
), keys as (
  update idempotency_key set turn_until = clock_timestamp() + $5::int4 * interval '1 millisecond'
  where chatbot_id = $1 and key = $4::text and turn = $3 and entry_id is null and exists (select from held)
)
select exists (select from held) as ours`;

const releaseTurn = `
with ${lockedTurn}, keys as (
  delete from idempotency_key
  where chatbot_id = $1 and key = $4::text and turn = $3 and entry_id is null and exists (select from ours)
), chats as (
  update chat set turn = null, turn_until = clock_timestamp()
  where chatbot_id = $1 and id = $2::int8 and turn = $3 and exists (select from free)
  returning cardinality(waiting) > 0 as awaited
)
select awaited, not exists (select from free) and exists (
  select from chat where chatbot_id = $1 and id = $2::int8 and turn = $3
) as locked
from (values (1)) one left join chats on true`;
