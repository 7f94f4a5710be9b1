/**
 * Turns: the row of a chat, with its line of those that wait, and with a retry key the row of that, too.
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
import { Effect, Predicate, Stream } from "effect";
import { channel } from "./Hints.ts";
import type { MakeChat } from "./Creations.ts";
import { entryColumns, entryOf, type EntryRow } from "./Rows.ts";
import type { Clients } from "./Clients.ts";
import { newEntryColumns, newEntryParameters, newEntryValues } from "./NewEntries.ts";
import { texts } from "./Parameters.ts";
import { claimForTurn, forgetAsks, forgetKey, giveKeyBack, knownRequest } from "./RequestKeys.ts";
import {
  againAfterClash,
  againAfterLock,
  isForeignKeyViolation,
  orBusy,
  orUnavailable,
} from "./Storage.ts";

const held = (by: "chat" | "key", forMillis: number | null): Taken => ({
  _tag: "Held",
  by,
  forMillis: Math.max(1, Math.min(turnLease, Math.ceil(forMillis ?? turnLease))),
});

export const makeTurnStore = Effect.fnUntraced(function* (
  { reads, writes }: Clients,
  make: MakeChat,
  hints: (kind: string) => Stream.Stream<string | null>,
  schema: string,
) {
  const scope = yield* Effect.scope;
  /** Names this instance among those that wait. */
  const waiter = crypto.randomUUID();

  /** Tells the instances that wait. Nobody waits for the telling, and a lost one is made up for. */
  const tell = (chatbot: number, chat: number) =>
    reads
      .command("select pg_notify($1, $2)", [channel, `freed:${chatbot}:${chat}:${schema}`])
      .pipe(Effect.ignore, Effect.forkIn(scope));

  /** Servers of earlier versions name no schema. */
  const isOurs = (hint: string) => {
    const [, , ...from] = hint.split(":");
    return from.length === 0 || from.join(":") === schema;
  };

  const entriesBefore = (chatbot: number, chat: number, before: number) =>
    Effect.map(
      reads.query<EntryRow>(chatbot, olderEntries, [chatbot, chat, before, turnEntries]),
      (rows) => rows.map(entryOf),
    );

  const takeChat = Effect.fnUntraced(function* (
    chatbot: number,
    chatId: number,
    retryKey: RetryKey | null,
    turn: string | null,
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
    if (first.turn === null) {
      if (!first.exists) return yield* new ChatNotFound({ chatId });
      return held("chat", first.for_millis);
    }
    // Whoever had a turn that ran out loses its key, too, and may be no more.
    if (first.before !== null) {
      const before = texts([first.before]);
      const forget = writes.query(chatbot, forgetAsks, [chatbot, before]);
      // Outside a transaction the turn is taken in any case.
      yield* retryKey === null ? Effect.ignore(forget) : forget;
    }
    const seen = first.position === null ? 0n : first.position;
    // The statement's snapshot may be older than the turn: another may have appended while we waited
    // for the chat's row. The turn is ours now, so a second look is exact.
    const newest =
      seen === first.entries
        ? first.id === null
          ? []
          : (rows as ReadonlyArray<EntryRow>).map(entryOf)
        : yield* entriesBefore(chatbot, chatId, Number.MAX_SAFE_INTEGER);
    return {
      _tag: "Turn",
      turn: { id: first.turn, chatbot, chat: chatId, retryKey, newest },
    } satisfies Taken;
  });

  const takeOnce = (chatbot: number, chat: number | null, retryKey: RetryKey) =>
    writes.transaction(
      chatbot,
      Effect.gen(function* () {
        const { fingerprint, key } = retryKey;
        const [claimed] = yield* writes
          .query<{
            readonly turn: string;
            readonly before: string | null;
          }>(chatbot, claimForTurn, [chatbot, texts([key]), texts([fingerprint]), turnLease])
          .pipe(
            Effect.catchIf(isForeignKeyViolation, () =>
              Effect.fail(
                chat === null
                  ? new ChatbotNotFound({ chatbot })
                  : new ChatNotFound({ chatId: chat }),
              ),
            ),
          );
        if (claimed === undefined) return yield* known(chatbot, chat, retryKey);
        const turn = { id: claimed.turn, chatbot, chat, retryKey, newest: [] };
        if (chat === null) return { _tag: "Turn", turn } satisfies Taken;
        const taken = yield* takeChat(chatbot, chat, retryKey, claimed.turn);
        // The place in the line is kept, the key is not: it stays that of a turn that ran out, if there is one.
        if (taken._tag === "Held") {
          const { before } = claimed;
          const values = [chatbot, key, claimed.turn];
          yield* before === null
            ? writes.query(chatbot, forgetKey, values)
            : writes.query(chatbot, giveKeyBack, [...values, before]);
        }
        return taken;
      }),
    );

  const known = Effect.fnUntraced(function* (
    chatbot: number,
    chat: number | null,
    { fingerprint, key }: RetryKey,
  ) {
    const [row] = yield* writes.query<KnownRow>(chatbot, knownRequest, [chatbot, key, chat]);
    // Gone in between: whoever held it failed, so the next try takes it.
    if (row === undefined) return held("key", 0);
    if (row.fingerprint !== fingerprint) return yield* new RetryKeyReused({ key });
    if (row.id !== null) {
      return { _tag: "Done", entry: entryOf(row as EntryRow), turn: row.turn! } satisfies Taken;
    }
    if (!row.exists) return yield* new ChatNotFound({ chatId: chat! });
    return held("key", row.for_millis);
  });

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
      if (row?.awaited === true) yield* tell(turn.chatbot, chat);
      if (row !== undefined) return entryOf(row);
      // The erasure passes over keys that are locked.
      const forget =
        turn.retryKey === null
          ? Effect.void
          : writes.query(turn.chatbot, forgetKey, [turn.chatbot, turn.retryKey.key, turn.id]);
      yield* Effect.tapError(mustExist(turn.chatbot, chat), () => forget);
      return yield* new TurnLost();
    });

  const appendToNewChat = Effect.fnUntraced(function* (turn: Turn, entry: NewEntry) {
    const { chat } = yield* make(turn.chatbot, {
      name: null,
      userRef: null,
      entry,
      retryKey: turn.retryKey && { ...turn.retryKey, turn: turn.id },
      // Nothing of it was written, and a process that stands still holds the chat_counter for longer than one waits for it.
    }).pipe(Effect.retry({ while: Predicate.isTagged("Overloaded"), times: 2 }));
    if (chat === null) return yield* new TurnLost();
    const { usage: _, ...stored } = entry;
    return { ...stored, id: chat.entryId!, chatId: chat.id, createTime: chat.createTime };
  });

  return TurnStore.of({
    take: (chatbot, chat, retryKey) =>
      retryKey === null && chat === null
        ? Effect.sync(() => ({
            _tag: "Turn",
            turn: { id: crypto.randomUUID(), chatbot, chat, retryKey, newest: [] },
          }))
        : orBusy(
            againAfterClash(
              retryKey !== null
                ? takeOnce(chatbot, chat, retryKey)
                : takeChat(chatbot, chat!, null, null),
            ),
          ),

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
                row?.awaited === true && chat !== null ? tell(chatbot, chat) : Effect.void,
              ),
              Effect.asVoid,
              orUnavailable,
            ),

    freed: hints("freed").pipe(
      Stream.filter((hint) => hint === null || isOurs(hint)),
      Stream.map((hint) => {
        if (hint === null) return null;
        const [chatbot, chat] = hint.split(":");
        return { chatbot: Number(chatbot), chat: Number(chat) };
      }),
    ),
  });
});

type TakenRow = {
  readonly exists: boolean;
  readonly turn: string | null;
  /** The chat's turn when it was looked at: one that ran out, or was ended since. */
  readonly before: string | null;
  readonly entries: bigint | null;
  readonly for_millis: number | null;
  readonly position: bigint | null;
} & (EntryRow | { readonly id: null });

type KnownRow = {
  readonly exists: boolean;
  readonly fingerprint: string;
  readonly turn: string | null;
  readonly for_millis: number | null;
} & (EntryRow | { readonly id: null });

// Whoever takes the turn is the first that waits or comes after one that did not come in time: either
// way the first is dropped. While one waits for the row to come into the line, the turn may end, which is told to nobody
// if nobody was there.
const takeTurn = `
with taken as (
  update chat set
    turn = coalesce($3::text, gen_random_uuid()::text),
    turn_until = clock_timestamp() + $4::int4 * interval '1 millisecond',
    waiting = array_remove(waiting[2:], $6)
  where chatbot_id = $1 and id = $2::int8 and (turn is null or turn_until <= clock_timestamp()) and (
    cardinality(waiting) = 0 or waiting[1] = $6
    or turn_until <= clock_timestamp() - $7::int4 * interval '1 millisecond')
  returning turn, entries
), queued as (
  update chat set waiting = waiting || $6::text
  where chatbot_id = $1 and id = $2::int8 and $6 <> all (waiting) and not exists (select from taken)
  returning waiting[1] = $6 and (turn is null or turn_until <= clock_timestamp()) as is_next
)
select present.id is not null as exists, present.turn as before, taken.turn, taken.entries,
  case when queued.is_next then 0 else extract(epoch from present.turn_until - clock_timestamp()) * 1000
    + case when present.turn is null or present.turn_until <= clock_timestamp() then $7::int4 else 0 end
  end::float8 as for_millis, newest.*
from (values (1)) one
left join taken on true
left join queued on true
left join chat present on present.chatbot_id = $1 and present.id = $2::int8
left join lateral (
  select ${entryColumns}, position from entry
  where taken.turn is not null and chatbot_id = $1 and chat_id = $2::int8
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

// Both or none: whoever took one of them over is not to wait for the other. The key is locked first, as by a take.
const renewTurn = `
with ours as (
  select from idempotency_key where chatbot_id = $1 and key = $4::text and turn = $3 and entry_id is null
  for update
), chats as (
  update chat set turn_until = clock_timestamp() + $5::int4 * interval '1 millisecond'
  where chatbot_id = $1 and id = $2::int8 and turn = $3 and ($4::text is null or exists (select from ours))
  returning 1
), requests as (
  update idempotency_key set turn_until = clock_timestamp() + $5::int4 * interval '1 millisecond'
  where chatbot_id = $1 and key = $4::text and turn = $3 and entry_id is null
    and ($2::int8 is null or exists (select from chats))
  returning 1
)
select ($2::int8 is null or exists (select from chats))
  and ($4::text is null or exists (select from requests)) as ours`;

// The key is locked first, as by a take.
const releaseTurn = `
with requests as (
  delete from idempotency_key where chatbot_id = $1 and key = $4::text and turn = $3 and entry_id is null
  returning 1
)
update chat set turn = null, turn_until = clock_timestamp()
where chatbot_id = $1 and id = $2::int8 and turn = $3 and (select count(*) from requests) >= 0
returning cardinality(waiting) > 0 as awaited`;
