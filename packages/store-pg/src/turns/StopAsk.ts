/**
 * Stops asks: marks the keys of asks, so that their turns are lost.
 */
import {
  idempotencyKeyLifetime,
  type Entry,
  type StopResult,
  type TurnStore,
} from "@parley/core/ports";
import { Effect } from "effect";
import { deadlines, withDeadline } from "../connections/Deadlines.ts";
import { toStorageUnavailable } from "../connections/PgErrors.ts";
import type { PgPools } from "../connections/PgPools.ts";
import { entryColumns, toEntry, type StoredEntry } from "../rows/ChatRows.ts";
import { isFree } from "../rows/IdempotencyKeys.ts";
import { byPrimaryKey } from "../rows/Statements.ts";

type Port = TurnStore["Service"];

type KeyState = Partial<StoredEntry> & {
  /** Whether the key is stopped, was just now, or belongs to a request that has ended. */
  readonly state: "stopped" | "ended";
  readonly key_turn: string | null;
  readonly key_entry: number | null;
};

const stopped: StopResult = { _tag: "Stopped" };

export const makeStopAsk = (pools: PgPools): Port["stop"] => {
  const { writes } = pools;
  return Effect.fnUntraced(function* (chatbot, key, waiting) {
    // The ask may have no turn yet. The statement changes no key that another request uses.
    if (waiting !== null) {
      const values = [chatbot, key, waiting.fingerprint, waiting.chatId];
      const rows = yield* toStorageUnavailable(writes.query(chatbot, stopWaiting, values));
      if (rows.length > 0) return stopped;
    }
    while (true) {
      const [row] = yield* toStorageUnavailable(
        writes.query<KeyState>(chatbot, stopStatement, [chatbot, key]),
      );
      if (row === undefined) return null;
      if (row.state === "stopped") return stopped;
      if (row.key_entry === null) return null;
      // The entry was stored after the snapshot: read again.
      if (row.id === null) continue;
      const entry: Entry = toEntry(row as StoredEntry);
      return entry.question === ""
        ? null
        : ({ _tag: "AlreadyAnswered", entry, turnId: row.key_turn! } satisfies StopResult);
    }
  }, withDeadline(deadlines.storeCall));
};

const stopWaiting = `
insert into idempotency_key as k (chatbot_id, key, fingerprint, made_at, chat_id, stopped)
select id, $2, $3, clock_timestamp(), (select id from chat where chatbot_id = $1 and id = $4::int8), true
from chatbot where id = $1
on conflict (chatbot_id, key) do update set
  fingerprint = excluded.fingerprint, made_at = excluded.made_at, turn = null, turn_until = null,
  chat_id = excluded.chat_id, entry_id = null, stopped = true
where ${isFree("k")}
returning 1`;

const isYoung = `made_at > statement_timestamp() - interval '${idempotencyKeyLifetime} milliseconds'`;

// The locked row may be newer than the snapshot. A turn whose lease has expired can still append, so it is stopped, too.
const stopStatement = `
with key_row as (
  select turn, turn_until, chat_id, entry_id, stopped from idempotency_key
  ${byPrimaryKey("key", "$2::text", isYoung)} for update
), marked as (
  insert into idempotency_key (chatbot_id, key, fingerprint, made_at)
  select $1, $2, '', clock_timestamp() from key_row where turn_until is not null
  on conflict (chatbot_id, key) do update set made_at = excluded.made_at, turn_until = null, stopped = true
)
select case when stopped or turn_until is not null then 'stopped' else 'ended' end as state,
  key_row.turn as key_turn, key_row.entry_id::float8 as key_entry, ${entryColumns("e")}, e.metadata, e.rating, e.comment
from key_row left join lateral (
  select * from entry ${byPrimaryKey("id", "key_row.entry_id", "chat_id = key_row.chat_id")}
) e on true`;
