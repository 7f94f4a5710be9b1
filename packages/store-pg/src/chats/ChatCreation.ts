/**
 * Creates chats, each with its first entry if it has one. Creations for one chatbot wait for one another at its
 * counter, so those that arrive together share a statement. Otherwise, they could occupy all connections for writes.
 */
import {
  fold,
  helloEntry,
  IdempotencyKeyReused,
  type Chat,
  type ChatStore,
  type IdempotencyKey,
  type NewEntry,
} from "@parley/core/ports";
import { Effect } from "effect";
import { deadlines, withDeadline } from "../connections/Deadlines.ts";
import { toStoreErrors, toChatbotNotFound } from "../connections/PgErrors.ts";
import type { PgPools } from "../connections/PgPools.ts";
import { ownSequence } from "../writes/IdSequences.ts";
import { byPrimaryKey, batchStatement } from "../rows/Statements.ts";
import {
  chatColumns,
  entryParameters,
  newEntryNames,
  spentColumn,
  toNewEntry,
} from "../rows/ChatRows.ts";
import { claimStatement, makeKeySweep } from "../rows/IdempotencyKeys.ts";
import { addSpending } from "../rows/Spending.ts";
import { makeWriteBatcher } from "../writes/WriteBatcher.ts";

export interface Creation {
  readonly name: string | null;
  readonly userRef: string | null;
  readonly entry: NewEntry | null;
  /**
   * The idempotency key, and the turn that has already claimed it (`isClaimed`) or claims it in this transaction. The
   * chat is created only if the turn holds the key.
   */
  readonly keyClaim:
    | (IdempotencyKey & { readonly turnId: string; readonly isClaimed: boolean })
    | null;
}

export interface CreatedChat {
  readonly id: Chat["id"];
  readonly createTime: Date;
  /** `null` for a chat without an entry. */
  readonly entryId: number | null;
}

export type ChatCreation = Effect.Success<ReturnType<typeof makeChatCreation>>;

export const makeChatCreation = Effect.fnUntraced(function* (pools: PgPools) {
  const { writes } = pools;
  const sweepKeys = yield* makeKeySweep(pools);
  /**
   * Creates a chat; returns `null` if another request holds its key. Inserts all chats of a batch or none, apart from
   * those whose key another turn holds.
   */
  const create = yield* makeWriteBatcher(
    Effect.fnUntraced(function* (chatbot: number, chats: ReadonlyArray<Creation>) {
      const claims = chats.flatMap(({ keyClaim }) =>
        keyClaim?.isClaimed === false ? keyClaim : [],
      );
      const insertion = insertStatement(chats, chatbot);
      type Row = CreatedChat & { readonly index: number };
      const insert = writes.query<Row>(chatbot, insertion.text, insertion.values);
      const claim = claimStatement(claims, chatbot);
      const insertWithClaims = writes.transaction(
        chatbot,
        Effect.andThen(writes.query(chatbot, claim.text, claim.values), insert),
      );
      const rows = yield* (claims.length === 0 ? insert : insertWithClaims).pipe(
        toChatbotNotFound(chatbot),
        toStoreErrors,
      );
      yield* sweepKeys(chatbot, claims.length);
      const results = chats.map((): CreatedChat | null => null);
      for (const row of rows) results[row.index - 1] = row;
      return results;
    }),
    200,
  );

  /** Creates at most one chat for an idempotency key. Waits for a creation in progress with the same key. */
  const createChat: ChatStore["Service"]["createChat"] = Effect.fnUntraced(function* (
    chatbot,
    { helloMessage, name, userRef },
    idempotencyKey,
  ) {
    const entry = helloMessage === null ? null : helloEntry(helloMessage);
    const keyClaim = idempotencyKey && {
      ...idempotencyKey,
      turnId: crypto.randomUUID(),
      isClaimed: false,
    };
    while (true) {
      const newChat = yield* create(chatbot, { name, userRef, entry, keyClaim });
      if (newChat !== null) {
        const { createTime, entryId, id } = newChat;
        const hello =
          entry && toNewEntry({ ...entry, id: entryId!, chatId: id, createTime }, entry);
        const chat = { id, name, userRef, createTime };
        return { chat, helloEntry: hello, replayed: false };
      }
      const { fingerprint, key } = idempotencyKey!;
      const [row] = yield* toStoreErrors(writes.query<KeyRow>(chatbot, chatOfKey, [chatbot, key]));
      // The other creation with the key failed meanwhile, or its chat was erased.
      if (row === undefined) continue;
      const { createdChat, fingerprint: rowFingerprint, ...chat } = row;
      if (rowFingerprint !== fingerprint || !createdChat) return yield* new IdempotencyKeyReused();
      return { chat, helloEntry: null, replayed: true };
    }
  }, withDeadline(deadlines.storeCall));

  return { create, createChat };
});

interface KeyRow extends Chat {
  readonly fingerprint: string;
  /** Whether the key's request was a creation. If not, the chat's fields may be null. */
  readonly createdChat: boolean;
}

// Keys are locked before the counter, as in every statement. The counter is locked before any id is drawn, so that ids
// ascend in the order of creation. Neither nextval nor RETURNING guarantees an order, so ids are ranked and matched with
// the chats' positions. A key that occurs twice creates one chat. Keys are completed by an INSERT that only updates: see
// `changeOwned` in `TurnRows`.
const insertStatement = batchStatement<Creation>(
  [
    ["name", "text", ({ name }) => name],
    ["user_ref", "text", ({ userRef }) => userRef],
    ["folded_name", "text", ({ name }) => name && fold(name)],
    ...entryParameters(({ entry }: Creation) => entry),
    ["key", "text", ({ keyClaim }) => keyClaim?.key],
    ["turn", "text", ({ keyClaim }) => keyClaim?.turnId],
    ["is_ask", "bool", ({ keyClaim }) => keyClaim?.isClaimed],
    spentColumn(({ entry }: Creation) => entry),
  ],
  (items) => `
with request as (
  select * from ${items}
), claimed_key as (
  select first.index, k.key from (
    select key, turn, min(index) as index from request where key is not null group by key, turn order by key
  ) first cross join lateral (
    select key from idempotency_key
    ${byPrimaryKey("key", "first.key", "turn = first.turn and turn_until is not null")} for update
  ) k
), new_chat as (
  select *, row_number() over (order by index) as n from request where key is null or index in (select index from claimed_key)
), counter as (
  insert into chat_counter as c (chatbot_id, chats, positions, last_time)
  select $1, count(*), count(*), date_trunc('milliseconds', clock_timestamp()) from new_chat having count(*) > 0
  on conflict (chatbot_id) do update set
    chats = c.chats + excluded.chats,
    positions = c.positions + excluded.positions,
    last_time = greatest(c.last_time, date_trunc('milliseconds', clock_timestamp()))
  returning positions - (select count(*) from new_chat) as before, last_time
), ranked as (
  select id, row_number() over (order by id) as n
  from (select nextval(${ownSequence("chat_id")}) as id from counter cross join new_chat) next_id
), chat_row as (
  insert into chat (chatbot_id, id, position, name, user_ref, folded_name, create_time, entries, last_entry_time)
  select $1, ranked.id, before + n, name, user_ref, folded_name, last_time,
    case when answer is null then 0 else 1 end, case when answer is null then null else last_time end
  from new_chat join ranked using (n) cross join counter
  returning id, position, create_time
), first_entry as (
  insert into entry (chatbot_id, chat_id, id, position, create_time, ${newEntryNames})
  select $1, ranked.id, nextval(${ownSequence("entry_id")}), 1, last_time, ${newEntryNames}
  from new_chat join ranked using (n) cross join counter
  where answer is not null
  returning id, chat_id
), created as (
  select chat_row.id, chat_row.create_time, first_entry.id as entry_id, new_chat.key, new_chat.is_ask, new_chat.index::int4 as index,
    new_chat.key_id, new_chat.spent_tokens
  from chat_row cross join counter join new_chat on new_chat.n = chat_row.position - counter.before
    left join first_entry on first_entry.chat_id = chat_row.id
), completed_key as (
  insert into idempotency_key as k (chatbot_id, key, fingerprint, made_at, chat_id, entry_id)
  select $1, key, '', clock_timestamp(), id, case when is_ask then entry_id end from created where key is not null
  on conflict (chatbot_id, key) do update set
    made_at = excluded.made_at, turn_until = null, chat_id = excluded.chat_id, entry_id = excluded.entry_id
), ${addSpending("created where spent_tokens is not null")}
select id::float8 as id, create_time as "createTime", entry_id::float8 as "entryId", index from created`,
);

const chatOfKey = `
select k.fingerprint, k.turn_until is null and k.entry_id is null and not k.stopped as "createdChat", ${chatColumns("c")}
from (select * from idempotency_key ${byPrimaryKey("key", "$2::text")}) k
left join lateral (select * from chat ${byPrimaryKey("id", "k.chat_id")}) c on true`;
