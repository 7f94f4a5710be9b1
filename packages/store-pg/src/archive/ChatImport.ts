/**
 * Stores the records of an import, in one transaction on a connection of its own.
 */
import {
  fold,
  ImportRefused,
  type Chat,
  type ColdTx,
  type Entry,
  type NewEntry,
} from "@parley/core/ports";
import { Effect } from "effect";
import type { SqlError } from "effect/sql";
import { isUniqueViolation, retryOnLocks } from "../connections/PgErrors.ts";
import { time } from "../connections/PgParams.ts";
import type { PgPools } from "../connections/PgPools.ts";
import type { Session, VerbQuery } from "../connections/Session.ts";
import { entryParameters } from "../rows/ChatRows.ts";
import { batchStatement, namesOf, type Column } from "../rows/Statements.ts";
import { advanceSequences } from "../writes/IdSequences.ts";

/**
 * Creates a function that runs an import in a transaction, which holds the chatbot's counter, and so keeps creations and
 * the chatbot's deletion waiting.
 */
export const makeImportTransaction =
  ({ exportSession }: PgPools) =>
  <A, E, R>(
    chatbot: number,
    body: (session: Session) => Effect.Effect<A, E | SqlError.SqlError, R>,
  ): Effect.Effect<A, E | SqlError.SqlError, R> =>
    Effect.scoped(
      Effect.gen(function* () {
        const session = yield* exportSession;
        const { query, transaction } = session;
        yield* query(chatbot, advanceSequences, [true]);
        // In a separate transaction, because an uncommitted row that references the chatbot would block renaming it.
        yield* retryOnLocks(query(chatbot, createCounter, [chatbot]));
        return yield* transaction(
          chatbot,
          Effect.andThen(query(chatbot, lockCounter, [chatbot]), body(session)),
        );
      }),
    ) as Effect.Effect<A, E | SqlError.SqlError, R>;

export const importVerbs = (
  query: VerbQuery,
): Pick<ColdTx, "hasChats" | "insertRecords" | "endImport"> => {
  let [chats, position, entries] = [0n, 0n, 0];
  return {
    hasChats: (chatbot) =>
      Effect.map(query<CounterRow>(chatbot, readCounter, [chatbot]), ([counter]) => {
        position = counter?.positions ?? 0n;
        return counter !== undefined && counter.chats > 0n;
      }),
    insertRecords: (chatbot, records) => {
      const chatsToImport: Array<ChatToImport> = [];
      const entriesToImport: Array<EntryToImport> = [];
      for (const record of records) {
        if (record._tag === "Chat") {
          [chats, position, entries] = [chats + 1n, position + 1n, 0];
          chatsToImport.push({ chat: record.chat, position });
        } else {
          const entry = { ...record.entry, usage: record.usage };
          entriesToImport.push({ entry, position: ++entries });
        }
      }
      const inserts = [
        insertChats(chatsToImport, chatbot),
        insertEntries(entriesToImport, chatbot),
      ];
      return Effect.forEach(inserts, ({ text, values }) => query(chatbot, text, values), {
        discard: true,
      }).pipe(
        Effect.catchIf(isUniqueViolation, () =>
          Effect.fail(new ImportRefused({ reason: "two entries have the same id" })),
        ),
      );
    },
    endImport: Effect.fnUntraced(function* (chatbot, { chat, chatTime, entry }) {
      yield* query(chatbot, countEntries, [chatbot]);
      yield* query(chatbot, setCounter, [chatbot, chats, position, time(new Date(chatTime))]);
      yield* query(chatbot, lockSequences);
      yield* query(chatbot, moveSequences, [chat, entry]);
    }),
  };
};

interface CounterRow {
  readonly chats: bigint;
  readonly positions: bigint;
}

interface ChatToImport {
  readonly chat: Chat;
  readonly position: bigint;
}

interface EntryToImport {
  readonly entry: Entry & NewEntry;
  readonly position: number;
}

const createCounter = `
insert into chat_counter (chatbot_id, chats, positions, last_time)
select id, 0, 0, 'epoch' from chatbot where id = $1 on conflict (chatbot_id) do nothing`;
const readCounter = "select chats, positions from chat_counter where chatbot_id = $1";
const lockCounter = `${readCounter} for update`;

const insertInto = <Item>(table: string, columns: ReadonlyArray<Column<Item>>) =>
  batchStatement(
    columns,
    (items) =>
      `insert into ${table} (chatbot_id, ${namesOf(columns)}) select $1, ${namesOf(columns)} from ${items}`,
  );
const insertChats = insertInto<ChatToImport>("chat", [
  ["id", "int8", ({ chat }) => BigInt(chat.id)],
  ["position", "int8", ({ position }) => position],
  ["name", "text", ({ chat }) => chat.name],
  ["user_ref", "text", ({ chat }) => chat.userRef],
  ["folded_name", "text", ({ chat }) => chat.name && fold(chat.name)],
  ["create_time", "timestamptz", ({ chat }) => time(chat.createTime)],
  ["entries", "int8", () => 0n],
]);
const insertEntries = insertInto<EntryToImport>("entry", [
  ["chat_id", "int8", ({ entry }) => BigInt(entry.chatId)],
  ["id", "int8", ({ entry }) => BigInt(entry.id)],
  ["position", "int8", ({ position }) => BigInt(position)],
  ["create_time", "timestamptz", ({ entry }) => time(entry.createTime)],
  ...entryParameters(({ entry }: EntryToImport) => entry),
  ["rating", "text", ({ entry }) => entry.rating],
  ["comment", "text", ({ entry }) => entry.comment],
]);

const countEntries = `
update chat set entries = newest.position, last_entry_time = newest.create_time
from (
  select distinct on (chat_id) chat_id, position, create_time from entry
  where chatbot_id = $1 order by chat_id, position desc
) newest
where chat.chatbot_id = $1 and chat.id = newest.chat_id`;

// The chatbot has no other chats.
const setCounter = `
update chat_counter set chats = $2::int8, positions = $3::int8, last_time = greatest(last_time, $4::timestamptz)
where chatbot_id = $1`;

// Imports set the sequences one import at a time, so that none sets a sequence back.
const lockSequences =
  "select pg_advisory_xact_lock(hashtextextended('parley.sequences.' || current_schema(), 0))";

// A sequence cannot be locked, so the margin covers the ids that other transactions draw between the read and the
// update. An unused sequence has a last value of 1, which is the next value to be drawn.
const moveSequences = `
select setval(sequence, greatest_id + 1000) from (values
  ('chat_id'::regclass, $1::int8, (select last_value from chat_id)),
  ('entry_id', $2::int8, (select last_value from entry_id))
) sequences (sequence, greatest_id, last_id) where greatest_id >= last_id`;
