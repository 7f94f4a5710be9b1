/**
 * What the statements that change a turn have in common. A turn is stored in the row of its chat, with the queue of
 * waiting instances, and in the row of its idempotency key; a turn with neither chat nor key has no row. An erasure may
 * lock a chat for seconds. No statement of a turn waits for that lock: it skips a locked chat, and runs again later. So
 * the order in which a statement locks a chat and a key cannot cause a deadlock.
 */
import {
  AnswerStopped,
  ChatNotFound,
  StorageUnavailable,
  TurnLost,
  type Turn,
} from "@parley/core/ports";
import { Effect, Schedule } from "effect";
import { databaseOverload, isUnsent, toStoreErrors } from "../connections/PgErrors.ts";
import type { PgPools } from "../connections/PgPools.ts";
import type { Statement } from "../connections/Session.ts";
import { byPrimaryKey, type Column } from "../rows/Statements.ts";
import { makeWriteBatcher } from "../writes/WriteBatcher.ts";

/** What became of a turn; `locked_elsewhere` if another transaction has locked its chat. */
export interface Outcome {
  readonly outcome: "owned" | "locked_elsewhere" | "lost" | "stopped" | "erased";
}

/** Creates a function that changes a turn. Changes for one chatbot that arrive together share a statement. */
export const makeChange = Effect.fnUntraced(function* <Item extends Turn, Row extends Outcome>(
  { writes }: PgPools,
  statement: (turns: ReadonlyArray<Item>, chatbot: number) => Statement,
) {
  const change = yield* makeWriteBatcher((chatbot: number, turns: ReadonlyArray<Item>) => {
    const { text, values } = statement(turns, chatbot);
    return writes.query<Row & { readonly index: number }>(chatbot, text, values).pipe(
      toStoreErrors,
      Effect.map((rows) => rows.toSorted((a, b) => a.index - b.index)),
    );
  }, 100);
  return Effect.fnUntraced(function* (turn: Item) {
    const row = yield* change(turn.chatbot, turn);
    switch (row.outcome) {
      case "owned":
        return row;
      case "locked_elsewhere":
        return yield* databaseOverload("locked");
      case "lost":
        return yield* new TurnLost();
      case "stopped":
        return yield* new AnswerStopped();
      case "erased":
        return yield* new ChatNotFound({ chatId: turn.chatId! });
    }
  });
});

export const hasRow = ({ chatId, idempotencyKey }: Turn) =>
  chatId !== null || idempotencyKey !== null;

/** For each turn, the last error from an append or a release that left it unknown whether the turn had ended. */
export type UnknownOutcomes = WeakMap<Turn, StorageUnavailable>;

/** Records the errors of the attempt that leave it unknown whether the turn has ended. */
export const recordUnknown =
  (outcomes: UnknownOutcomes, turn: Turn) =>
  <A, E>(attempt: Effect.Effect<A, E | StorageUnavailable>) =>
    Effect.tapError(attempt, (error) =>
      Effect.sync(() => {
        if (error instanceof StorageUnavailable && !isUnsent(error)) outcomes.set(turn, error);
      }),
    );

/**
 * Whether to retry an append or a release after the error. If the outcome is unknown, only a turn with a row allows a
 * retry, because the row shows whether the turn has ended.
 */
export const mayRepeat = (turn: Turn) => (error: { readonly _tag: string }) =>
  error._tag === "Overloaded" ||
  (error instanceof StorageUnavailable && (hasRow(turn) || isUnsent(error)));

export const retriesFor = (duration: number) =>
  Schedule.min([Schedule.exponential(5), Schedule.spaced(100)]).pipe(
    Schedule.jittered,
    Schedule.upTo({ duration }),
  );

export const turnColumns: ReadonlyArray<Column<Turn>> = [
  ["chat_id", "int8", ({ chatId }) => (chatId === null ? null : BigInt(chatId))],
  ["turn", "text", ({ id }) => id],
  ["key", "text", ({ idempotencyKey }) => idempotencyKey?.key],
];

/**
 * Returns CTEs that lock the rows of turns: keys in key order, and chats unless another transaction has locked them.
 * `turn_row` has the outcome of each turn: `owned` if the turn holds its rows, which the statement then changes. Its
 * `chat_id` comes from the request; its `locked_id` is the chat's id if this statement has locked the chat.
 */
export const lockTurns = (items: string) => `
with request as (
  select * from ${items}
), locked as (
  select request.*, key_row.*, chat_row.*
  from (select * from request order by key, chat_id) request left join lateral (
    select stopped as is_stopped from idempotency_key
    ${byPrimaryKey("key", "request.key", "turn = request.turn and (turn_until is not null or stopped)")} for update
  ) key_row on true left join lateral (
    select id as locked_id, position, create_time, entries, waiting, last_entry_time from chat
    ${byPrimaryKey("id", "request.chat_id", "turn = request.turn")} for no key update skip locked
  ) chat_row on true
), turn_row as (
  select *, case
    when is_stopped then 'stopped'
    when chat_id is not null and locked_id is null then coalesce((
      select case when chat.turn = locked.turn then 'locked_elsewhere' else 'lost' end
      from chat ${byPrimaryKey("id", "locked.chat_id")}
    ), 'erased')
    when key is not null and is_stopped is null then 'lost'
    else 'owned'
  end as outcome
  from locked
)`;

/**
 * Returns CTEs that follow {@link lockTurns}, and change the rows of the turns that hold them: `insert … on conflict do
 * update` finds a row by its primary key, whatever the planner expects, unlike an UPDATE with a join. The row always
 * exists, so nothing is inserted, and the values only satisfy NOT NULL.
 */
export const changeOwned = (chat: string, key: string) => `
chats as (
  insert into chat (chatbot_id, id, position, create_time, entries)
  select $1, locked_id, position, create_time, entries from turn_row
  where outcome = 'owned' and locked_id is not null
  on conflict (chatbot_id, id) do update set ${chat}
), keys as (
  insert into idempotency_key (chatbot_id, key, fingerprint, made_at)
  select $1, key, '', '-infinity' from turn_row where outcome = 'owned' and key is not null
  on conflict (chatbot_id, key) do update set ${key}
)`;
