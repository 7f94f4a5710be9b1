/**
 * Turns: the row of a chat, with the line of the processes that wait, and the row of the idempotency key, if there is one.
 * An erasure may hold a chat for seconds, so no statement waits for it: it does nothing then, and is tried again.
 */
import {
  ChatbotNotFound,
  ChatNotFound,
  IdempotencyKeyReused,
  StorageUnavailable,
  turnEntries,
  turnLease,
  TurnLost,
  turnPrecedence,
  TurnStore,
  type Entry,
  type NewEntry,
  type Overloaded,
  type IdempotencyKey,
  type Taken,
  type Turn,
} from "@parley/core";
import { Data, Effect, Predicate, Schedule, Stream } from "effect";
import type { ChatCreation } from "../chats/ChatCreation.ts";
import type { PgPools } from "../database/PgPools.ts";
import { channel, type Notifications } from "../database/Notifications.ts";
import { newEntryColumns, newEntryParameters, newEntryValues } from "../NewEntries.ts";
import { texts } from "../Parameters.ts";
import { entryColumns, entryOf, type EntryRow } from "../Rows.ts";
import { claimKey, forgetAsks, forgetKey, lockKey } from "../rows/IdempotencyKeys.ts";
import {
  againAfterClash,
  busy,
  isForeignKeyViolation,
  isUnsent,
  orBusy,
  orUnavailable,
} from "../database/PgErrors.ts";

const held = (by: "chat" | "key", forMillis: number | null): Taken => ({
  _tag: "Held",
  by,
  forMillis: Math.max(1, Math.min(turnLease, Math.ceil(forMillis ?? turnLease))),
});

/** Milliseconds after which a chat that is locked is tried again. */
const lockedPause = 50;

/** Another request claimed the key in between. */
class KeyLost extends Data.TaggedError("KeyLost") {}

/** The chat is locked, as by an erasure. */
class ChatLocked extends Data.TaggedError("ChatLocked") {}

export const makeTurnStore = Effect.fnUntraced(function* (
  { reads, writes }: PgPools,
  { create }: ChatCreation,
  notifications: Notifications,
  schema: string,
) {
  const scope = yield* Effect.scope;
  /** Names this instance among those that wait. */
  const waiter = crypto.randomUUID();

  /** Notifies the instances that wait. Nothing waits for it, and their polling makes up for a lost one. */
  const notify = (chatbot: number, chat: number) =>
    reads
      .query("operator", "select pg_notify($1, $2)", [
        channel,
        `freed:${chatbot}:${chat}:${schema}`,
      ])
      .pipe(Effect.ignore, Effect.forkIn(scope));

  const entriesBefore = (chatbot: number, chat: number, before: number) =>
    Effect.map(
      reads.query<EntryRow>(chatbot, olderEntries, [chatbot, chat, before, turnEntries]),
      (rows) => rows.map(entryOf),
    );

  const takeChat = Effect.fnUntraced(function* (
    chatbot: number,
    chatId: number,
    idempotencyKey: IdempotencyKey | null,
    turn: string,
  ) {
    const rows = yield* writes.query<TakenRow>(chatbot, takeTurn, [
      chatbot,
      chatId,
      turn,
      turnLease,
      turnEntries,
      waiter,
      turnPrecedence,
    ]);
    const first = rows[0]!;
    if (first.entries === null) {
      if (!first.exists) return yield* new ChatNotFound({ chatId });
      return held("chat", first.for_millis);
    }
    // An ask whose turn ran out loses its key, too; its process may be gone.
    if (first.before !== null) {
      const forget = writes.query(chatbot, forgetAsks, [chatbot, texts([first.before])]);
      // Outside a transaction the turn is taken in any case.
      yield* idempotencyKey === null ? Effect.ignore(forget) : forget;
    }
    const seen = first.position === null ? 0n : first.position;
    // The statement's snapshot may be older than the turn: another may have appended while this one waited for the chat's
    // row. The turn is ours now, so a second look is exact.
    const newest =
      seen === first.entries
        ? first.id === null
          ? []
          : (rows as ReadonlyArray<EntryRow>).map(entryOf)
        : yield* entriesBefore(chatbot, chatId, Number.MAX_SAFE_INTEGER);
    return {
      _tag: "Turn",
      turn: { id: turn, chatbot, chat: chatId, idempotencyKey, newest },
    } satisfies Taken;
  });

  const claim = (chatbot: number, { fingerprint, key }: IdempotencyKey, turn: string) =>
    Effect.map(
      writes.query(chatbot, claimKey, [chatbot, key, fingerprint, turn, turnLease]),
      (rows) => rows.length > 0,
    );

  /** What a request with a key that is known gets; `undefined` if the key is free. */
  const known = Effect.fnUntraced(function* (
    chatbot: number,
    chat: number | null,
    { fingerprint, key }: IdempotencyKey,
  ) {
    const [row] = yield* writes.query<KnownRow>(chatbot, lockKey, [chatbot, key, chat]);
    if (row === undefined || row.free) return undefined;
    if (row.fingerprint !== fingerprint) return yield* new IdempotencyKeyReused({ key });
    if (row.id !== null) {
      return { _tag: "Done", entry: entryOf(row as EntryRow), turn: row.turn! } satisfies Taken;
    }
    if (!row.exists) return yield* new ChatNotFound({ chatId: chat! });
    return held("key", row.for_millis);
  });

  const takeKey = Effect.fnUntraced(function* (chatbot: number, idempotencyKey: IdempotencyKey) {
    const turn = { id: crypto.randomUUID(), chatbot, chat: null, idempotencyKey, newest: [] };
    const isOurs = yield* claim(chatbot, idempotencyKey, turn.id).pipe(
      Effect.catchIf(isForeignKeyViolation, () => Effect.fail(new ChatbotNotFound({ chatbot }))),
    );
    if (isOurs) return { _tag: "Turn", turn } satisfies Taken;
    return (yield* known(chatbot, null, idempotencyKey)) ?? held("key", 0);
  });

  /** The key is claimed last: a place in the chat's line is kept without it. */
  const takeBoth = (chatbot: number, chat: number, idempotencyKey: IdempotencyKey) =>
    writes
      .transaction(
        chatbot,
        Effect.gen(function* () {
          const settled = yield* known(chatbot, chat, idempotencyKey);
          if (settled !== undefined) return settled;
          const turn = crypto.randomUUID();
          const taken = yield* takeChat(chatbot, chat, idempotencyKey, turn);
          if (taken._tag === "Held") return taken;
          if (!(yield* claim(chatbot, idempotencyKey, turn))) return yield* new KeyLost();
          return taken;
        }),
      )
      .pipe(
        Effect.retry({ while: Predicate.isTagged("KeyLost"), times: 3 }),
        Effect.catchTag("KeyLost", () => Effect.succeed(held("key", 0))),
      );

  const take = (chatbot: number, chat: number | null, idempotencyKey: IdempotencyKey | null) => {
    if (idempotencyKey === null) return takeChat(chatbot, chat!, null, crypto.randomUUID());
    return chat === null
      ? takeKey(chatbot, idempotencyKey)
      : takeBoth(chatbot, chat, idempotencyKey);
  };

  /** Why a statement of a turn did nothing. */
  const whyNot = Effect.fnUntraced(function* ({ chat, chatbot, id, idempotencyKey }: Turn) {
    const [found] = yield* writes.query<{ readonly exists: boolean; readonly ours: boolean }>(
      chatbot,
      lookAtTurn,
      [chatbot, chat, id, idempotencyKey?.key ?? null],
    );
    if (!found!.exists) return yield* new ChatNotFound({ chatId: chat! });
    return found!.ours ? new ChatLocked() : new TurnLost();
  });

  const appendToChat = Effect.fnUntraced(function* (turn: Turn, entry: NewEntry) {
    const { chat, chatbot, id, idempotencyKey } = turn;
    const [row] = yield* writes
      .query<EntryRow & { readonly awaited: boolean }>(chatbot, appendEntry, [
        chatbot,
        chat,
        id,
        idempotencyKey?.key ?? null,
        ...newEntryValues(entry),
      ])
      .pipe(againAfterClash);
    if (row === undefined) {
      // An erasure passes over keys that are locked.
      const forget =
        idempotencyKey === null
          ? Effect.void
          : writes.query(chatbot, forgetKey, [chatbot, idempotencyKey.key, id]);
      return yield* yield* Effect.tapErrorTag(whyNot(turn), "ChatNotFound", () => forget);
    }
    if (row.awaited) yield* notify(chatbot, chat!);
    return entryOf(row);
  }, orBusy);

  const appendToNewChat = Effect.fnUntraced(function* (
    { chatbot, id, idempotencyKey }: Turn,
    entry: NewEntry,
  ) {
    const claimed = idempotencyKey && { key: idempotencyKey.key, turn: id };
    const created = yield* create(chatbot, { name: null, userRef: null, entry, claimed }, null);
    if (created === null) return yield* new TurnLost();
    const { usage: _, ...stored } = entry;
    return {
      ...stored,
      id: created.entryId!,
      chatId: created.id,
      createTime: created.createTime,
    };
  });

  /**
   * Answers are paid, so an append is tried for as long as its turn lasts when nobody renews it. A try whose outcome is
   * unknown may have stored the entry. That ended the turn, so that no later try stores it twice; a turn without chat and key
   * has no row that could tell, and is not tried again.
   */
  const append = (turn: Turn, entry: NewEntry) => {
    let unknown: StorageUnavailable | null = null;
    const hasRow = turn.chat !== null || turn.idempotencyKey !== null;
    const tried: Effect.Effect<
      Entry,
      ChatbotNotFound | ChatNotFound | TurnLost | Overloaded | StorageUnavailable | ChatLocked
    > = turn.chat === null ? appendToNewChat(turn, entry) : appendToChat(turn, entry);
    return tried.pipe(
      Effect.tapError((error) =>
        Effect.sync(() => {
          if (error._tag === "StorageUnavailable" && !isUnsent(error)) unknown = error;
        }),
      ),
      Effect.retry({
        while: (error) =>
          error._tag === "ChatLocked" ||
          error._tag === "Overloaded" ||
          (error._tag === "StorageUnavailable" && (hasRow || isUnsent(error))),
        schedule: forALease,
      }),
      Effect.catchTag("ChatLocked", () => Effect.fail(busy)),
      Effect.catchTag("TurnLost", (lost) => Effect.fail(unknown ?? lost)),
    );
  };

  return TurnStore.of({
    take: (chatbot, chat, idempotencyKey) =>
      idempotencyKey === null && chat === null
        ? Effect.sync(() => ({
            _tag: "Turn",
            turn: { id: crypto.randomUUID(), chatbot, chat, idempotencyKey, newest: [] },
          }))
        : orBusy(againAfterClash(take(chatbot, chat, idempotencyKey))),

    earlier: ({ chat, chatbot }, before) =>
      chat === null ? Effect.succeed([]) : orUnavailable(entriesBefore(chatbot, chat, before)),

    renew: (turn) =>
      Effect.gen(function* () {
        const { chat, chatbot, id, idempotencyKey } = turn;
        const [row] = yield* againAfterClash(
          writes.query<{ readonly ours: boolean }>(chatbot, renewTurn, [
            chatbot,
            chat,
            id,
            idempotencyKey?.key ?? null,
            turnLease,
          ]),
        );
        // A row that is locked is renewed the next time.
        return row!.ours || (yield* whyNot(turn))._tag === "ChatLocked";
      }).pipe(orUnavailable),

    append,

    release: ({ chat, chatbot, id, idempotencyKey }) =>
      Effect.gen(function* () {
        if (chat === null && idempotencyKey === null) return;
        const [row] = yield* againAfterClash(
          writes.query<{ readonly awaited: boolean | null; readonly locked: boolean }>(
            chatbot,
            releaseTurn,
            [chatbot, chat, id, idempotencyKey?.key ?? null],
          ),
        );
        if (row!.awaited === true) yield* notify(chatbot, chat!);
        if (row!.locked) return yield* new ChatLocked();
      }).pipe(
        Effect.retry({ while: Predicate.isTagged("ChatLocked"), schedule: forALease }),
        Effect.catchTag("ChatLocked", () => Effect.void),
        orUnavailable,
      ),

    freed: notifications("freed").pipe(
      Stream.map((freed) => {
        if (freed === null) return { of: schema, freed: null };
        const [chatbot, chat, ...of] = freed.split(":");
        return { of: of.join(":"), freed: { chatbot: Number(chatbot), chat: Number(chat) } };
      }),
      // The channel is that of the database.
      Stream.filter(({ of }) => of === schema),
      Stream.map(({ freed }) => freed),
    ),
  });
});

/** As long as the lease of a turn that nobody renews. */
const forALease = Schedule.min([Schedule.exponential(5), Schedule.spaced(100)]).pipe(
  Schedule.jittered,
  Schedule.upTo({ duration: turnLease }),
);

type TakenRow = {
  readonly exists: boolean;
  /** The turn before, which ran out. */
  readonly before: string | null;
  /** `null` if the turn was not taken. */
  readonly entries: bigint | null;
  readonly for_millis: number | null;
  readonly position: bigint | null;
} & (EntryRow | { readonly id: null });

type KnownRow = {
  readonly exists: boolean;
  readonly free: boolean;
  readonly fingerprint: string;
  readonly turn: string | null;
  readonly for_millis: number | null;
} & (EntryRow | { readonly id: null });

// All is decided by the row as it is once it is locked, which may be newer than the statement's snapshot. The instance that
// takes the turn is the first that waits, or comes after one that did not come in time: either way the first is dropped.
const takeTurn = `
with free as (
  select turn, turn_until, waiting, (turn is null or turn_until <= clock_timestamp()) and (
    cardinality(waiting) = 0 or waiting[1] = $6
    or turn_until <= clock_timestamp() - $7::int4 * interval '1 millisecond') as is_ours
  from chat where chatbot_id = $1 and id = $2::int8
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
select exists (select from chat where chatbot_id = $1 and id = $2::int8) as exists, free.turn as before, taken.entries,
  case when free.waiting is null then ${lockedPause}
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

/** The rows of a turn, locked; the chat only if it is not locked by another. Chat `$2` or key `$4` may be null. */
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

/** Whether chat `$2` exists, and whether it and key `$4` are in turn `$3`. */
const lookAtTurn = `
select $2::int8 is null or exists (select from chat where chatbot_id = $1 and id = $2::int8) as exists,
  ($2::int8 is null or exists (select from chat where chatbot_id = $1 and id = $2::int8 and turn = $3))
    and ($4::text is null or exists (
      select from idempotency_key where chatbot_id = $1 and key = $4::text and turn = $3 and entry_id is null
    )) as ours`;

// Both or none: an ask that took one of them over does not wait for the other.
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
