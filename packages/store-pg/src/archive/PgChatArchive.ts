/**
 * The port `ChatArchive`: erasures, exports and imports record by record, and the sums of usage.
 */
import {
  ChatArchive,
  ChatbotNotFound,
  exportDetail,
  fold,
  importDetail,
  ImportRefused,
  checkArchiveOrder,
  type ArchiveRecord,
  type Chat,
  type Entry,
  type NewEntry,
  type Usage,
  type UsageGroup,
  type UsageSum,
} from "@parley/core/ports";
import { Effect, Stream } from "effect";
import {
  isUniqueViolation,
  retryOnConflict,
  toChatbotNotFound,
  toStorageUnavailable,
} from "../database/PgErrors.ts";
import { array, time, times } from "../database/PgParams.ts";
import type { PgPools } from "../database/PgPools.ts";
import { settleIds } from "../database/WriteState.ts";
import { entryColumns, columnsOfEntry, newEntryColumns, toEntry } from "../rows/ChatRows.ts";
import { arraysOf, parametersOf } from "../rows/Statements.ts";
import { makeErasure } from "./ChatErasure.ts";

/** Records that one statement of an import inserts. */
const batch = 200;

export const makeChatArchive = (pools: PgPools): ChatArchive["Service"] =>
  ChatArchive.of({
    erase: makeErasure(pools),

    export: (chatbot, actor, person) =>
      Stream.unwrap(
        Effect.gen(function* () {
          const session = yield* pools.transfer;
          const audited = yield* session.query(chatbot, auditExport, [
            chatbot,
            actor,
            exportDetail(person),
          ]);
          if (audited.length === 0) return yield* new ChatbotNotFound({ chatbot });
          const userRef = person === undefined ? [] : [person.userRef];
          return session.stream<ExportRow>(chatbot, rowsOf(userRef), [chatbot, ...userRef]).pipe(
            Stream.mapAccum(
              () => 0,
              (seen: number, row: ExportRow): readonly [number, ReadonlyArray<ArchiveRecord>] => {
                const records: Array<ArchiveRecord> = [];
                if (row.in_chat !== seen) {
                  const { chat_time: createTime, in_chat: id, name, userRef } = row;
                  records.push({ _tag: "Chat", chat: { id, name, userRef, createTime } });
                }
                if (row.id !== null) {
                  records.push({ _tag: "Entry", entry: toEntry(row), usage: row.usage });
                }
                return [row.in_chat, records];
              },
            ),
          );
        }),
      ).pipe(Stream.catch((error) => Stream.fromEffect(toStorageUnavailable(Effect.fail(error))))),

    import: Effect.fnUntraced(function* (chatbot, records, actor) {
      const refuse = (reason: string) => Effect.fail(new ImportRefused({ reason }));
      let chats = 0;
      let highestEntry = 0;
      /** The chat of the current entries. It is inserted when they are counted. */
      let open: ChatToImport | null = null;
      const { query, transaction } = yield* toStorageUnavailable(pools.transfer);
      yield* toStorageUnavailable(query(chatbot, settleIds, [true]));
      // In a transaction of its own: a row that refers to the chatbot prevents its renaming until it is committed.
      yield* query(chatbot, makeCounter, [chatbot]).pipe(
        retryOnConflict,
        toChatbotNotFound(chatbot),
        toStorageUnavailable,
      );
      const insert = Effect.fnUntraced(function* (
        before: bigint,
        newChats: ReadonlyArray<ChatToImport>,
        newEntries: ReadonlyArray<EntryToImport>,
      ) {
        yield* query(chatbot, insertChats, [
          chatbot,
          before + BigInt(chats),
          array(newChats, "int8", ({ chat }) => BigInt(chat.id)),
          array(newChats, "text", ({ chat }) => chat.name),
          array(newChats, "text", ({ chat }) => chat.userRef),
          array(newChats, "text", ({ chat }) => (chat.name === null ? null : fold(chat.name))),
          times(newChats, ({ chat }) => chat.createTime),
          array(newChats, "int8", ({ entries }) => BigInt(entries)),
          times(newChats, ({ lastEntryTime }) => lastEntryTime),
        ]);
        chats += newChats.length;
        yield* query(chatbot, insertEntries, [
          chatbot,
          array(newEntries, "int8", ({ entry }) => BigInt(entry.chatId)),
          array(newEntries, "int8", ({ entry }) => BigInt(entry.id)),
          array(newEntries, "int8", ({ position }) => BigInt(position)),
          times(newEntries, ({ entry }) => entry.createTime),
          ...arraysOf(importedColumns, newEntries),
        ]);
      });
      const inTransaction = Effect.gen(function* () {
        const [counter] = yield* query<{ readonly chats: bigint; readonly positions: bigint }>(
          chatbot,
          lockCounter,
          [chatbot],
        );
        if (counter === undefined) return yield* new ChatbotNotFound({ chatbot });
        if (counter.chats > 0n) return yield* refuse("the chatbot has chats");
        yield* Stream.runForEachArray(Stream.rechunk(checkArchiveOrder(records), batch), (some) => {
          const newChats: Array<ChatToImport> = [];
          const newEntries: Array<EntryToImport> = [];
          for (const record of some) {
            if (record._tag === "Chat") {
              if (open !== null) newChats.push(open);
              open = { chat: record.chat, entries: 0, lastEntryTime: null };
            } else {
              open!.entries++;
              open!.lastEntryTime = record.entry.createTime;
              highestEntry = Math.max(highestEntry, record.entry.id);
              const entry = { ...record.entry, usage: record.usage };
              newEntries.push({ entry, position: open!.entries });
            }
          }
          return insert(counter.positions, newChats, newEntries);
        });
        if (open !== null) yield* insert(counter.positions, [open], []);
        yield* query(chatbot, auditImport, [chatbot, actor, importDetail(chats)]);
        yield* query(chatbot, lockSequences);
        yield* query(chatbot, settleCounter, [chatbot, chats, open?.chat.id ?? 0, highestEntry]);
        return chats;
      });
      return yield* transaction(chatbot, inTransaction).pipe(
        Effect.catchIf(isUniqueViolation, () => refuse("two entries have one id")),
        toStorageUnavailable,
      );
    }, Effect.scoped),

    usage: (chatbot, since, by = null) =>
      pools.transfer.pipe(
        Effect.flatMap(({ query }) =>
          query<UsageSum>(chatbot, sumUsage(by), [chatbot, time(since)]),
        ),
        Effect.map((rows) => rows.map((row) => ({ ...row }))),
        Effect.scoped,
        toStorageUnavailable,
      ),
  });

type ChatToImport = { readonly chat: Chat; entries: number; lastEntryTime: Date | null };
type EntryToImport = {
  readonly entry: Entry & NewEntry;
  readonly position: number;
};

/** A chat without entries is one row with nulls for the entry. */
type ExportRow = {
  readonly in_chat: number;
  readonly chat_time: Date;
  readonly usage: Usage | null;
} & Pick<Chat, "name" | "userRef"> &
  (Entry | { readonly id: null });

// Lateral, so that every plan walks the chats and seeks their entries.
const rowsOf = (userRef: ReadonlyArray<string>) => `
select chat.id::float8 as in_chat, chat.name, chat.user_ref as "userRef", chat.create_time as chat_time,
  ${entryColumns("entry")}, case when provider is not null then json_build_object(
    'provider', provider, 'model', model, 'promptTokens', prompt_tokens, 'completionTokens', completion_tokens,
    'attempts', attempts, 'latencyMillis', latency_millis
  ) end as usage
from chat left join lateral (
  select * from entry where chatbot_id = $1 and chat_id = chat.id order by position
) entry on true
where chat.chatbot_id = $1${userRef.length === 0 ? "" : " and chat.user_ref = $2"}
order by chat.position, entry.position`;

const auditExport = `
insert into audit (chatbot_id, actor, action, detail) select id, $2, 'export', $3 from chatbot where id = $1
returning 1`;

const auditImport =
  "insert into audit (chatbot_id, actor, action, detail) values ($1, $2, 'import', $3)";

const makeCounter = `
insert into chat_counter (chatbot_id, chats, positions, last_time) values ($1, 0, 0, 'epoch')
on conflict (chatbot_id) do nothing`;
const lockCounter = `select chats, positions from chat_counter where chatbot_id = $1 for update`;

const insertChats = `
insert into chat (chatbot_id, id, position, name, user_ref, folded_name, create_time, entries, last_entry_time)
select $1, i.id, $2::int8 + n, name, user_ref, folded_name, create_time, entries, last_entry_time
from unnest($3::int8[], $4::text[], $5::text[], $6::text[], $7::timestamptz[], $8::int8[], $9::timestamptz[])
  with ordinality as i(id, name, user_ref, folded_name, create_time, entries, last_entry_time, n)`;

const importedColumns = columnsOfEntry(({ entry }: EntryToImport) => entry);

const insertEntries = `
insert into entry (chatbot_id, chat_id, id, position, create_time, ${newEntryColumns})
select $1, * from unnest($2::int8[], $3::int8[], $4::int8[], $5::timestamptz[], ${parametersOf(importedColumns, 6, "[]")})`;

// Imports set the sequences one after the other, so that none sets them back.
const lockSequences =
  "select pg_advisory_xact_lock(hashtextextended('parley.sequences.' || current_schema(), 0))";

// A sequence cannot be locked: the margin covers the ids that others draw between its reading and its setting. An
// unused sequence has the last value 1, which is the next to be drawn.
const settleCounter = `
with moved as (
  select case when $3::int8 >= (select last_value from chat_id) then setval('chat_id', $3::int8 + 1000) end,
    case when $4::int8 >= (select last_value from entry_id) then setval('entry_id', $4::int8 + 1000) end
)
update chat_counter set chats = chats + $2::int8, positions = positions + $2::int8,
  last_time = greatest(
    last_time, (select create_time from chat where chatbot_id = $1 order by position desc limit 1))
from moved where chatbot_id = $1`;

const groups: Readonly<Record<UsageGroup, string>> = {
  day: "to_char(create_time at time zone 'UTC', 'YYYY-MM-DD')",
  key: "key_id",
  userRef: "(select user_ref from chat where chat.chatbot_id = $1 and chat.id = entry.chat_id)",
};

const sumUsage = (by: UsageGroup | null) => `
select ${by === null ? "null::text" : groups[by]} as "group", provider, model,
  count(*)::float8 as answers, coalesce(sum(attempts), 0)::float8 as attempts,
  coalesce(sum(prompt_tokens), 0)::float8 as "promptTokens",
  coalesce(sum(completion_tokens), 0)::float8 as "completionTokens"
from entry where chatbot_id = $1 and create_time >= $2::timestamptz and question <> '' and not flagged
group by 1, provider, model`;
