/**
 * Implements the port `TurnStore`. A turn is stored in the row of its chat, with the queue of waiting instances, and in
 * the row of its idempotency key; a turn with neither chat nor key has no row. An erasure may lock a chat for seconds.
 * No statement here waits for that lock: a statement skips a locked chat, and runs again later. So the order in which
 * the statement locks a chat and a key cannot cause a deadlock.
 */
import {
  ChatbotId,
  ChatId,
  AskDeadline,
  ChatNotFound,
  turnEntries,
  turnLease,
  StorageUnavailable,
  TurnLost,
  TurnStore,
  type Entry,
  type NewEntry,
  type Spending,
  type Turn,
} from "@parley/core/ports";
import { Clock, Effect, Schedule, Stream } from "effect";
import type { ChatCreation } from "../chats/ChatCreation.ts";
import { makeWriteBatcher } from "../writes/WriteBatcher.ts";
import { deadlines, withDeadline } from "../connections/Deadlines.ts";
import type { Notifications } from "../connections/Notifications.ts";
import {
  databaseOverload,
  isUnsent,
  toStoreErrors,
  toStorageUnavailable,
} from "../connections/PgErrors.ts";
import type { PgPools } from "../connections/PgPools.ts";
import { ownSequence } from "../writes/WriteState.ts";
import type { Statement } from "../connections/Session.ts";
import { atKey, batchStatement, type Column } from "../rows/Statements.ts";
import {
  entryParameters,
  entryColumns,
  newEntryNames,
  spentColumn,
  toEntry,
} from "../rows/ChatRows.ts";
import { leaseEnd } from "../rows/IdempotencyKeys.ts";
import { addSpending, readSpending } from "../rows/Spending.ts";
import { hasKey, makeTakeTurn, turnColumns } from "./TakeTurn.ts";

type Port = TurnStore["Service"];

export const makeTurnStore = Effect.fnUntraced(function* (
  pools: PgPools,
  { create }: ChatCreation,
  notifications: Notifications,
) {
  const { reads, writes } = pools;

  const entriesBefore = ({ chatId, chatbot }: Turn, before: number) =>
    reads.query<Entry>(chatbot, olderEntries, [chatbot, chatId, before]);

  const take = yield* makeTakeTurn(pools, (turn) =>
    toStoreErrors(entriesBefore(turn, Number.MAX_SAFE_INTEGER)).pipe(
      // The failed ask gets no turn that it could release. If this fails, too, the lease ends.
      Effect.tapError(() => Effect.ignore(releaseTurn({ ...turn, cost: null }))),
    ),
  );

  /** Creates a function that changes a turn. Changes for one chatbot that arrive together share a statement. */
  const makeChange = Effect.fnUntraced(function* <Item extends Turn, Row extends Outcome>(
    statement: (turns: ReadonlyArray<Item>, chatbot: number) => Statement,
  ) {
    const change = yield* makeWriteBatcher(
      (chatbot: number, turns: ReadonlyArray<Item>) => {
        const { text, values } = statement(turns, chatbot);
        return writes.query<Row & { readonly at: number }>(chatbot, text, values).pipe(
          toStoreErrors,
          Effect.map((rows) => rows.toSorted((a, b) => a.at - b.at)),
        );
      },
      { maxWriters: 2, maxItems: 100 },
    );
    return Effect.fnUntraced(function* (turn: Item) {
      const row = yield* change(turn.chatbot, turn);
      switch (row.outcome) {
        case "owned":
          return row;
        case "locked_elsewhere":
          return yield* databaseOverload;
        case "lost":
          return yield* new TurnLost();
        case "erased":
          return yield* new ChatNotFound({ chatId: turn.chatId! });
      }
    });
  });
  const renewTurn = yield* makeChange(renewStatement);
  const releaseTurn = yield* makeChange<Release, Outcome>((turns, chatbot) =>
    (turns.some(({ cost }) => cost !== null) ? spendingRelease : plainRelease)(turns, chatbot),
  );
  const appendToChat = yield* makeChange<Append, Outcome & Entry>((turns, chatbot) => {
    const addsSpending = turns.some(({ entry }) => entry.spentTokens != null);
    return (addsSpending ? spendingAppend : plainAppend)(turns, chatbot);
  });

  /** For each turn, the last error from an append or a release that left it unknown whether the turn had ended. */
  const unknownOutcomes = new WeakMap<Turn, StorageUnavailable>();
  const noteUnknown =
    (turn: Turn) =>
    <A, E>(attempt: Effect.Effect<A, E | StorageUnavailable>) =>
      Effect.tapError(attempt, (error) =>
        Effect.sync(() => {
          if (error instanceof StorageUnavailable && !isUnsent(error))
            unknownOutcomes.set(turn, error);
        }),
      );
  /**
   * Whether to retry an append or a release after the error. If the outcome is unknown, only a turn with a row allows a
   * retry, because the row shows whether the turn has ended.
   */
  const mayRepeat = (turn: Turn) => (error: { readonly _tag: string }) =>
    error._tag === "Overloaded" ||
    (error instanceof StorageUnavailable && (hasRow(turn) || isUnsent(error)));

  const appendToNewChat = Effect.fnUntraced(function* (
    { chatbot, id, idempotencyKey, visitor = null }: Turn,
    entry: NewEntry,
  ) {
    const keyClaim = idempotencyKey && { ...idempotencyKey, turnId: id, isClaimed: true };
    const newChat = yield* create(chatbot, { name: null, userRef: visitor, entry, keyClaim });
    if (newChat === null) return yield* new TurnLost();
    const { createTime, entryId, id: chatId } = newChat;
    return toEntry({ ...entry, id: entryId!, chatId, createTime });
  });

  const earlier: Port["earlier"] = (turn, before) =>
    toStorageUnavailable(entriesBefore(turn, before));

  const renew: Port["renew"] = (turn) =>
    renewTurn(turn).pipe(
      Effect.as(true),
      Effect.catchTags({
        TurnLost: () => Effect.succeed(false),
        // The chat is locked, or the database is busy: the next renewal will do.
        Overloaded: () => Effect.succeed(true),
      }),
    );

  /**
   * The answer is already paid for, so a failed append is retried until the ask's deadline or, if the ask has none, for
   * the length of a lease. The last attempt ends at most five seconds later. An attempt with an unknown outcome may
   * have stored the entry. If so, it also ended the turn, so that no later attempt stores the entry again. A turn with
   * neither chat nor key has no row that could show this, so its append is not retried after an unknown outcome.
   */
  const append: Port["append"] = Effect.fnUntraced(function* (turn, entry) {
    const millisLeft = (yield* AskDeadline) - (yield* Clock.currentTimeMillis);
    const millis = millisLeft === Infinity ? turnLease : Math.max(0, millisLeft);
    const attempt: ReturnType<Port["append"]> =
      turn.chatId === null
        ? appendToNewChat(turn, entry)
        : Effect.map(appendToChat({ ...turn, entry }), toEntry);
    const notedAttempt = noteUnknown(turn)(attempt);
    return yield* notedAttempt.pipe(
      // Most appends succeed on the first attempt and need no schedule.
      Effect.catchIf(mayRepeat(turn), () =>
        Effect.retry(notedAttempt, { while: mayRepeat(turn), schedule: retriesFor(millis) }),
      ),
      Effect.catchTag("TurnLost", (error) => Effect.fail(unknownOutcomes.get(turn) ?? error)),
      withDeadline(millis + deadlines.storeCall),
    );
  });

  /**
   * The statement that ends a turn also adds its tokens. So a retry does not add them again: the turn's row shows
   * whether the statement has run. A turn that was lost, or had neither chat nor key, has no such row; its release then
   * names neither, and only adds the tokens. After an append or a release with an unknown outcome, such a release adds
   * none, because they may have been added already.
   */
  const release: Port["release"] = (turn, cost = null) => {
    const attemptRelease = (target: Turn) =>
      Effect.suspend(() => {
        const counts = hasRow(target) || !unknownOutcomes.has(turn);
        return releaseTurn({ ...target, cost: counts ? cost : null });
      }).pipe(
        noteUnknown(turn),
        Effect.retry({
          while: (error) =>
            cost === null ? error._tag === "Overloaded" : mayRepeat(target)(error),
          // The failed ask waits for the release. Without tokens, the release is retried only while the chat is locked
          // or the database is busy, for up to the length of a lease. With tokens, it is retried after every error that
          // allows it, but for a shorter time.
          schedule: retriesFor(cost === null ? turnLease : deadlines.storeCall),
        }),
        Effect.asVoid,
      );
    const turnErrors = ["ChatNotFound", "TurnLost"] as const;
    return attemptRelease(turn).pipe(
      Effect.catchTag(turnErrors, () =>
        // The turn was lost, or its chat was erased: only the tokens are left to add.
        cost === null
          ? Effect.void
          : attemptRelease({ ...turn, chatId: null, idempotencyKey: null }),
      ),
      Effect.catchTag(turnErrors, () => Effect.void),
      Effect.catchTag("Overloaded", (cause) =>
        cost === null ? Effect.void : Effect.fail(new StorageUnavailable({ cause })),
      ),
    );
  };

  const spending: Port["spending"] = (chatbot, apiKeyId) =>
    toStorageUnavailable(
      Effect.map(
        reads.query<Spending>(chatbot, readSpending, [chatbot, apiKeyId]),
        ([row]) => row!,
      ),
    );

  const freedTurns: Port["freedTurns"] = Stream.map(notifications("freed"), (content) => {
    if (content === null) return null;
    const [chatbot, chat] = content.split(":");
    return {
      chatbot: ChatbotId.make(Number(chatbot), { disableChecks: true }),
      chatId: ChatId.make(Number(chat), { disableChecks: true }),
    };
  });

  return TurnStore.of({ take, earlier, renew, append, release, spending, freedTurns });
});

interface Append extends Turn {
  readonly entry: NewEntry;
}

interface Release extends Turn {
  /** The tokens that the ask cost. */
  readonly cost: { readonly apiKeyId: string; readonly tokens: number } | null;
}

/** Whether the turn has a row while it is held. */
const hasRow = ({ chatId, idempotencyKey }: Turn) => chatId !== null || idempotencyKey !== null;

/** What became of a turn; `locked_elsewhere` if another transaction has locked its chat. */
interface Outcome {
  readonly outcome: "owned" | "locked_elsewhere" | "lost" | "erased";
}

const retriesFor = (duration: number) =>
  Schedule.min([Schedule.exponential(5), Schedule.spaced(100)]).pipe(
    Schedule.jittered,
    Schedule.upTo({ duration }),
  );

// If the chat has no entry with the id `$3`, `$3` itself bounds the position: an entry's position is never greater than
// its own id, which is below `$3`.
const olderEntries = `
select ${entryColumns("entry")} from entry
where chatbot_id = $1 and chat_id = $2::int8 and id < $3::int8 and position < coalesce(
  (select position from entry ${atKey("id", "$3::int8", "chat_id = $2::int8")}), $3::int8)
order by position desc limit ${turnEntries}`;

/**
 * Returns CTEs that lock the rows of turns: keys in key order, and chats unless another transaction has locked them.
 * `turn_row` has the outcome of each turn: `owned` if the turn holds its rows, which the statement then changes. Its
 * `chat_id` comes from the request; its `locked_id` is the chat's id if this statement has locked the chat.
 *
 * Changes are written as `insert … on conflict do update`. The row always exists, so nothing is inserted, and values
 * that the update does not use only satisfy NOT NULL. Unlike an UPDATE with a join, this finds the row by its primary
 * key, whatever the planner expects.
 */
const lockTurns = (items: string) => `
with request as (
  select * from ${items}
), locked as (
  select request.*, key_row.*, chat_row.*
  from (select * from request order by key, chat_id) request left join lateral (
    select true as has_key from idempotency_key
    ${atKey("key", "request.key", "turn = request.turn and entry_id is null")} for update
  ) key_row on true left join lateral (
    select id as locked_id, position, create_time, entries, waiting, last_entry_time from chat
    ${atKey("id", "request.chat_id", "turn = request.turn")} for no key update skip locked
  ) chat_row on true
), turn_row as (
  select *, case
    when chat_id is not null and locked_id is null then coalesce((
      select case when chat.turn = locked.turn then 'locked_elsewhere' else 'lost' end
      from chat ${atKey("id", "locked.chat_id")}
    ), 'erased')
    when key is not null and has_key is null then 'lost'
    else 'owned'
  end as outcome
  from locked
)`;

const notifyFreed =
  "case when outcome = 'owned' and cardinality(waiting) > 0 then pg_notify(current_schema(), concat_ws(':', 'freed', $1::int4, turn_row.chat_id)) end";

// Renews the leases on both chat and key, or on neither: an ask that took over one must not wait for the other.
const renewStatement = batchStatement(
  turnColumns,
  (items) => `${lockTurns(items)}, chats as (
  insert into chat (chatbot_id, id, position, create_time, entries, turn_until)
  select $1, locked_id, position, create_time, entries, ${leaseEnd}
  from turn_row where outcome = 'owned' and locked_id is not null
  on conflict (chatbot_id, id) do update set turn_until = excluded.turn_until
), keys as (
  insert into idempotency_key (chatbot_id, key, fingerprint, made_at, turn_until)
  select $1, key, '', clock_timestamp(), ${leaseEnd} from turn_row where outcome = 'owned' and key is not null
  on conflict (chatbot_id, key) do update set turn_until = excluded.turn_until
)
select at::int4 as at, outcome from turn_row`,
);

const releaseColumns: ReadonlyArray<Column<Release>> = [
  ["key_id", "text", ({ cost }) => cost?.apiKeyId],
  ["spent_tokens", "int8", ({ cost }) => cost && BigInt(cost.tokens)],
];

// Leaves out the tokens of a deleted chatbot: a row in `key_spending` would violate the foreign key.
const releasedTurns = `(
  select key_id, spent_tokens from turn_row
  where outcome = 'owned' and spent_tokens is not null and exists (select from chatbot where id = $1)
) released_turn`;

// A released key counts as old: any request may claim it, and a sweep deletes it first.
const releaseStatement = (addsSpending: boolean) =>
  batchStatement<Release>(
    addsSpending ? [...turnColumns, ...releaseColumns] : turnColumns,
    (items) => `${lockTurns(items)}, chats as (
  insert into chat (chatbot_id, id, position, create_time, entries, turn_until)
  select $1, locked_id, position, create_time, entries, clock_timestamp()
  from turn_row where outcome = 'owned' and locked_id is not null
  on conflict (chatbot_id, id) do update set turn = null, turn_until = excluded.turn_until
), keys as (
  insert into idempotency_key (chatbot_id, key, fingerprint, made_at)
  select $1, key, '', '-infinity' from turn_row where outcome = 'owned' and key is not null
  on conflict (chatbot_id, key) do update set turn = null, made_at = excluded.made_at
)${addsSpending ? `, ${addSpending(releasedTurns)}` : ""}
select at::int4 as at, outcome, ${notifyFreed} as notified from turn_row`,
  );
const plainRelease = releaseStatement(false);
const spendingRelease = releaseStatement(true);

// Joins `new_entry`, so that the API key's spending row, which the key's other asks wait for, is locked last.
const spendingTurns = `(
  select turn_row.key_id, turn_row.spent_tokens from turn_row join new_entry using (chat_id)
  where outcome = 'owned' and spent_tokens is not null
) spending_turn`;

const appendStatement = (addsSpending: boolean) =>
  batchStatement<Append>(
    [
      ...turnColumns,
      ...entryParameters(({ entry }: Append) => entry),
      ...(addsSpending ? [spentColumn(({ entry }: Append) => entry)] : []),
    ],
    (items, hasKeys) => `${lockTurns(items)}, chat_change as (
  insert into chat (chatbot_id, id, position, create_time, entries, last_entry_time, turn_until)
  select $1, locked_id, position, create_time, entries + 1,
    greatest(last_entry_time, create_time, date_trunc('milliseconds', clock_timestamp())), clock_timestamp()
  from turn_row where outcome = 'owned'
  on conflict (chatbot_id, id) do update set
    turn = null, turn_until = excluded.turn_until, entries = excluded.entries, last_entry_time = excluded.last_entry_time
  returning id, entries, last_entry_time
), new_entry as (
  insert into entry (chatbot_id, chat_id, id, position, create_time, ${newEntryNames})
  select $1, locked_id, nextval(${ownSequence("entry_id")}), chat_change.entries, chat_change.last_entry_time, ${newEntryNames}
  from turn_row join chat_change on chat_change.id = locked_id where outcome = 'owned'
  returning *
)${
      hasKeys
        ? `, completed_key as (
  insert into idempotency_key (chatbot_id, key, fingerprint, made_at, chat_id, entry_id)
  select $1, key, '', clock_timestamp(), new_entry.chat_id, new_entry.id
  from turn_row join new_entry using (chat_id) where outcome = 'owned' and key is not null
  on conflict (chatbot_id, key) do update set
    made_at = excluded.made_at, turn_until = null, chat_id = excluded.chat_id, entry_id = excluded.entry_id
)`
        : ""
    }${addsSpending ? `, ${addSpending(spendingTurns)}` : ""}
select at::int4 as at, outcome, ${entryColumns("new_entry")}, ${notifyFreed} as notified
from turn_row left join new_entry on outcome = 'owned' and new_entry.chat_id = turn_row.chat_id`,
    hasKey,
  );
const plainAppend = appendStatement(false);
const spendingAppend = appendStatement(true);
