/**
 * Appends the entry of an answer, and so ends its turn.
 */
import {
  AnswerStopped,
  AskDeadline,
  TurnLost,
  turnLease,
  type Entry,
  type NewEntry,
  type Turn,
  type TurnStore,
} from "@parley/core/ports";
import { Clock, Effect } from "effect";
import type { ChatCreation } from "../chats/ChatCreation.ts";
import { deadlines, withDeadline } from "../connections/Deadlines.ts";
import { lacksConnection, retry, toStorageUnavailable } from "../connections/PgErrors.ts";
import type { PgPools } from "../connections/PgPools.ts";
import {
  entryColumns,
  entryParameters,
  newEntryNames,
  spentColumn,
  toNewEntry,
} from "../rows/ChatRows.ts";
import { addSpending } from "../rows/Spending.ts";
import { batchStatement, byPrimaryKey } from "../rows/Statements.ts";
import { ownSequence } from "../writes/IdSequences.ts";
import {
  lockTurns,
  makeChange,
  mayRepeat,
  recordUnknown,
  retriesFor,
  turnColumns,
  type Outcome,
  type UnknownOutcomes,
} from "./TurnRows.ts";

type Port = TurnStore["Service"];

interface Append extends Turn {
  readonly entry: NewEntry;
}

export const makeAppendEntry = Effect.fnUntraced(function* (
  pools: PgPools,
  { create }: ChatCreation,
  unknownOutcomes: UnknownOutcomes,
) {
  const appendToChat = yield* makeChange<Append, Outcome & Entry>(pools, appendStatement);

  const appendToNewChat = Effect.fnUntraced(function* (
    { chatbot, id, idempotencyKey, visitor = null }: Turn,
    entry: NewEntry,
  ) {
    const keyClaim = idempotencyKey && { ...idempotencyKey, turnId: id, isClaimed: true };
    const newChat = yield* create(chatbot, { name: null, userRef: visitor, entry, keyClaim });
    if (newChat === null) {
      // The turn no longer holds its key.
      const values = [chatbot, idempotencyKey!.key, id];
      const rows = yield* toStorageUnavailable(pools.writes.query(chatbot, stoppedKey, values));
      return yield* rows.length > 0 ? new AnswerStopped() : new TurnLost();
    }
    const { createTime, entryId, id: chatId } = newChat;
    const { answer, flagged, moderation, question } = entry;
    const texts = { question, answer, moderation, flagged };
    return toNewEntry({ ...texts, id: entryId!, chatId, createTime }, entry);
  });

  /**
   * The answer is already paid for, so a failed append is retried until the ask's deadline or, if the ask has none, for
   * the length of a lease, but not for longer than a store call if PostgreSQL grants no connection. An attempt with an
   * unknown outcome may have stored the entry. If so, it also ended the turn, so that no later attempt stores the entry
   * again.
   */
  const append: Port["append"] = Effect.fnUntraced(function* (turn, entry) {
    const millisLeft = (yield* AskDeadline) - (yield* Clock.currentTimeMillis);
    const millis = millisLeft === Infinity ? turnLease : Math.max(0, millisLeft);
    const attempt: ReturnType<Port["append"]> =
      turn.chatId === null
        ? appendToNewChat(turn, entry)
        : Effect.map(appendToChat({ ...turn, entry }), (row) => toNewEntry(row, entry));
    const began = performance.now();
    const isWorthIt = (error: { readonly cause?: unknown }) =>
      !lacksConnection(error.cause) || performance.now() - began < deadlines.storeCall;
    return yield* retry(recordUnknown(unknownOutcomes, turn)(attempt), {
      while: (error) => mayRepeat(turn)(error) && isWorthIt(error),
      schedule: () => retriesFor(millis - (performance.now() - began)),
    }).pipe(
      Effect.catchTag("TurnLost", (error) => Effect.fail(unknownOutcomes.get(turn) ?? error)),
      withDeadline(millis + deadlines.storeCall),
    );
  });
  return append;
});

const stoppedKey = `select from idempotency_key ${byPrimaryKey("key", "$2::text", "stopped and turn = $3")}`;

// The spending joins `new_entry`, so that the API key's spending row, which the key's other asks wait for, is locked
// last.
const appendStatement = batchStatement<Append>(
  [
    ...turnColumns,
    ...entryParameters(({ entry }: Append) => entry),
    spentColumn(({ entry }: Append) => entry),
  ],
  (items) => `${lockTurns(items)}, chat_change as (
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
), completed_key as (
  insert into idempotency_key (chatbot_id, key, fingerprint, made_at, chat_id, entry_id)
  select $1, key, '', clock_timestamp(), new_entry.chat_id, new_entry.id
  from turn_row join new_entry using (chat_id) where outcome = 'owned' and key is not null
  on conflict (chatbot_id, key) do update set
    made_at = excluded.made_at, turn_until = null, chat_id = excluded.chat_id, entry_id = excluded.entry_id
), ${addSpending(`(
  select turn_row.key_id, turn_row.spent_tokens from turn_row join new_entry using (chat_id)
  where outcome = 'owned' and spent_tokens is not null
) spending_turn`)}
select index::int4 as index, outcome, ${entryColumns("new_entry")}
from turn_row left join new_entry on outcome = 'owned' and new_entry.chat_id = turn_row.chat_id`,
);
