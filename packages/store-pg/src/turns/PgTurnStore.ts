/**
 * Turns: the row of a chat, with the line of the processes that wait, and the row of the idempotency key, if there is one.
 * Every statement locks the key before the chat.
 */
import {
  ChatbotNotFound,
  ChatNotFound,
  RetryKeyReused,
  turnEntries,
  turnLease,
  TurnLost,
  turnPrecedence,
  TurnStore,
  type NewEntry,
  type RetryKey,
  type Taken,
  type Turn,
} from "@parley/core";
import { Data, Effect, Predicate, Stream } from "effect";
import type { ChatCreation } from "../chats/ChatCreation.ts";
import type { PgPools } from "../database/PgPools.ts";
import { channel } from "../Hints.ts";
import { newEntryColumns, newEntryParameters, newEntryValues } from "../NewEntries.ts";
import { texts } from "../Parameters.ts";
import { entryColumns, entryOf, type EntryRow } from "../Rows.ts";
import { claimKey, forgetAsks, forgetKey, lockKey } from "../rows/IdempotencyKeys.ts";
import {
  againAfterClash,
  againAfterLock,
  isForeignKeyViolation,
  orBusy,
  orUnavailable,
} from "../Storage.ts";

const held = (by: "chat" | "key", forMillis: number | null): Taken => ({
  _tag: "Held",
  by,
  forMillis: Math.max(1, Math.min(turnLease, Math.ceil(forMillis ?? turnLease))),
});

/** Another request claimed the key in between. */
class KeyLost extends Data.TaggedError("KeyLost") {}

export const makeTurnStore = Effect.fnUntraced(function* (
  { reads, writes }: PgPools,
  { create }: ChatCreation,
  hints: (kind: string) => Stream.Stream<string | null>,
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
    retryKey: RetryKey | null,
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
      yield* retryKey === null ? Effect.ignore(forget) : forget;
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
      turn: { id: turn, chatbot, chat: chatId, retryKey, newest },
    } satisfies Taken;
  });

  const claim = (chatbot: number, { fingerprint, key }: RetryKey, turn: string) =>
    Effect.map(
      writes.query(chatbot, claimKey, [chatbot, key, fingerprint, turn, turnLease]),
      (rows) => rows.length > 0,
    );

  /** What a request with a key that is known gets; `undefined` if the key is free. */
  const known = Effect.fnUntraced(function* (
    chatbot: number,
    chat: number | null,
    { fingerprint, key }: RetryKey,
  ) {
    const [row] = yield* writes.query<KnownRow>(chatbot, lockKey, [chatbot, key, chat]);
    if (row === undefined || row.free) return undefined;
    if (row.fingerprint !== fingerprint) return yield* new RetryKeyReused({ key });
    if (row.id !== null) {
      return { _tag: "Done", entry: entryOf(row as EntryRow), turn: row.turn! } satisfies Taken;
    }
    if (!row.exists) return yield* new ChatNotFound({ chatId: chat! });
    return held("key", row.for_millis);
  });

  const takeKey = Effect.fnUntraced(function* (chatbot: number, retryKey: RetryKey) {
    const turn = { id: crypto.randomUUID(), chatbot, chat: null, retryKey, newest: [] };
    const isOurs = yield* claim(chatbot, retryKey, turn.id).pipe(
      Effect.catchIf(isForeignKeyViolation, () => Effect.fail(new ChatbotNotFound({ chatbot }))),
    );
    if (isOurs) return { _tag: "Turn", turn } satisfies Taken;
    return (yield* known(chatbot, null, retryKey)) ?? held("key", 0);
  });

  /** The key is claimed last: a place in the chat's line is kept without it. */
  const takeBoth = (chatbot: number, chat: number, retryKey: RetryKey) =>
    writes
      .transaction(
        chatbot,
        Effect.gen(function* () {
          const settled = yield* known(chatbot, chat, retryKey);
          if (settled !== undefined) return settled;
          const turn = crypto.randomUUID();
          const taken = yield* takeChat(chatbot, chat, retryKey, turn);
          if (taken._tag === "Held") return taken;
          if (!(yield* claim(chatbot, retryKey, turn))) return yield* new KeyLost();
          return taken;
        }),
      )
      .pipe(
        Effect.retry({ while: Predicate.isTagged("KeyLost"), times: 3 }),
        Effect.catchTag("KeyLost", () => Effect.succeed(held("key", 0))),
      );

  const take = (chatbot: number, chat: number | null, retryKey: RetryKey | null) => {
    if (retryKey === null) return takeChat(chatbot, chat!, null, crypto.randomUUID());
    return chat === null ? takeKey(chatbot, retryKey) : takeBoth(chatbot, chat, retryKey);
  };

  const mustExist = Effect.fnUntraced(function* (chatbot: number, chat: number) {
    const [found] = yield* writes.query(chatbot, chatExists, [chatbot, chat]);
    if (found === undefined) return yield* new ChatNotFound({ chatId: chat });
  });

  const appendToChat = (turn: Turn, chat: number, entry: NewEntry) =>
    Effect.gen(function* () {
      const [row] = yield* writes.query<EntryRow & { readonly awaited: boolean }>(
        turn.chatbot,
        appendEntry,
        [turn.chatbot, chat, turn.id, turn.retryKey?.key ?? null, ...newEntryValues(entry)],
      );
      if (row?.awaited === true) yield* notify(turn.chatbot, chat);
      if (row !== undefined) return entryOf(row);
      // An erasure passes over keys that are locked.
      const forget =
        turn.retryKey === null
          ? Effect.void
          : writes.query(turn.chatbot, forgetKey, [turn.chatbot, turn.retryKey.key, turn.id]);
      yield* Effect.tapError(mustExist(turn.chatbot, chat), () => forget);
      return yield* new TurnLost();
    });

  const appendToNewChat = Effect.fnUntraced(function* (
    { chatbot, id, retryKey }: Turn,
    entry: NewEntry,
  ) {
    const claimed = retryKey && { key: retryKey.key, turn: id };
    const chat = { name: null, userRef: null, entry, claimed };
    // Nothing was written, and a process that stands still holds the counter for longer than one waits for it.
    const created = yield* Effect.retry(create(chatbot, chat), {
      while: Predicate.isTagged("Overloaded"),
      times: 2,
    });
    if (created === null) return yield* new TurnLost();
    const { usage: _, ...stored } = entry;
    return {
      ...stored,
      id: created.entryId!,
      chatId: created.id,
      createTime: created.createTime,
    };
  });

  return TurnStore.of({
    take: (chatbot, chat, retryKey) =>
      retryKey === null && chat === null
        ? Effect.sync(() => ({
            _tag: "Turn",
            turn: { id: crypto.randomUUID(), chatbot, chat, retryKey, newest: [] },
          }))
        : orBusy(againAfterClash(take(chatbot, chat, retryKey))),

    earlier: ({ chat, chatbot }, before) =>
      chat === null ? Effect.succeed([]) : orUnavailable(entriesBefore(chatbot, chat, before)),

    renew: ({ chat, chatbot, id, retryKey }) =>
      Effect.gen(function* () {
        const [row] = yield* againAfterClash(
          writes.query<{ readonly ours: boolean }>(chatbot, renewTurn, [
            chatbot,
            chat,
            id,
            retryKey?.key ?? null,
            turnLease,
          ]),
        );
        if (!row!.ours && chat !== null) yield* mustExist(chatbot, chat);
        return row!.ours;
      }).pipe(orUnavailable),

    append: (turn, entry) =>
      turn.chat === null
        ? appendToNewChat(turn, entry)
        : orBusy(againAfterLock(againAfterClash(appendToChat(turn, turn.chat, entry)))),

    release: ({ chat, chatbot, id, retryKey }) =>
      chat === null && retryKey === null
        ? Effect.void
        : writes
            .query<{ readonly awaited: boolean }>(chatbot, releaseTurn, [
              chatbot,
              chat,
              id,
              retryKey?.key ?? null,
            ])
            .pipe(
              againAfterClash,
              againAfterLock,
              Effect.flatMap(([row]) =>
                row?.awaited === true && chat !== null ? notify(chatbot, chat) : Effect.void,
              ),
              Effect.asVoid,
              orUnavailable,
            ),

    freed: hints("freed").pipe(
      Stream.map((hint) => {
        if (hint === null) return { of: schema, freed: null };
        const [chatbot, chat, ...of] = hint.split(":");
        return { of: of.join(":"), freed: { chatbot: Number(chatbot), chat: Number(chat) } };
      }),
      // The channel is that of the database.
      Stream.filter(({ of }) => of === schema),
      Stream.map(({ freed }) => freed),
    ),
  });
});

type TakenRow = {
  readonly exists: boolean;
  /** The chat's turn when it was looked at: one that ran out, or was ended since. */
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

// The instance that takes the turn is the first that waits, or comes after one that did not come in time: either way the
// first is dropped. While an instance waits for the row to join the line, the turn may end, which notifies nobody if the
// line was empty.
const takeTurn = `
with taken as (
  update chat set
    turn = $3::text,
    turn_until = clock_timestamp() + $4::int4 * interval '1 millisecond',
    waiting = array_remove(waiting[2:], $6)
  where chatbot_id = $1 and id = $2::int8 and (turn is null or turn_until <= clock_timestamp()) and (
    cardinality(waiting) = 0 or waiting[1] = $6
    or turn_until <= clock_timestamp() - $7::int4 * interval '1 millisecond')
  returning entries
), queued as (
  update chat set waiting = waiting || $6::text
  where chatbot_id = $1 and id = $2::int8 and $6 <> all (waiting) and not exists (select from taken)
  returning waiting[1] = $6 and (turn is null or turn_until <= clock_timestamp()) as is_next
)
select present.id is not null as exists, present.turn as before, taken.entries,
  case when queued.is_next then 0 else extract(epoch from present.turn_until - clock_timestamp()) * 1000
    + case when present.turn is null or present.turn_until <= clock_timestamp() then $7::int4 else 0 end
  end::float8 as for_millis, newest.*
from (values (1)) one
left join taken on true
left join queued on true
left join chat present on present.chatbot_id = $1 and present.id = $2::int8
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

const appendEntry = `
with ours as (
  select from idempotency_key where chatbot_id = $1 and key = $4::text and turn = $3 and entry_id is null
  for update
), mine as (
  update chat set
    turn = null, turn_until = clock_timestamp(), entries = entries + 1,
    last_entry_time = greatest(last_entry_time, create_time, date_trunc('milliseconds', clock_timestamp()))
  where chatbot_id = $1 and id = $2::int8 and turn = $3 and ($4::text is null or exists (select from ours))
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

const chatExists = "select from chat where chatbot_id = $1 and id = $2::int8";

// Both or none: an ask that took one of them over does not wait for the other.
const renewTurn = `
with ours as (
  select from idempotency_key where chatbot_id = $1 and key = $4::text and turn = $3 and entry_id is null
  for update
), chats as (
  update chat set turn_until = clock_timestamp() + $5::int4 * interval '1 millisecond'
  where chatbot_id = $1 and id = $2::int8 and turn = $3 and ($4::text is null or exists (select from ours))
  returning 1
), keys as (
  update idempotency_key set turn_until = clock_timestamp() + $5::int4 * interval '1 millisecond'
  where chatbot_id = $1 and key = $4::text and turn = $3 and entry_id is null
    and ($2::int8 is null or exists (select from chats))
  returning 1
)
select ($2::int8 is null or exists (select from chats))
  and ($4::text is null or exists (select from keys)) as ours`;

const releaseTurn = `
with keys as (
  delete from idempotency_key where chatbot_id = $1 and key = $4::text and turn = $3 and entry_id is null
  returning 1
)
update chat set turn = null, turn_until = clock_timestamp()
where chatbot_id = $1 and id = $2::int8 and turn = $3 and (select count(*) from keys) >= 0
returning cardinality(waiting) > 0 as awaited`;
