/**
 * The `ChatArchive` port: erasures, usage reports, and exports and imports as streams of records.
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
  retryOnDeadlock,
  toChatbotNotFound,
  toStorageUnavailable,
} from "../connections/PgErrors.ts";
import { time } from "../connections/PgParams.ts";
import type { PgPools } from "../connections/PgPools.ts";
import { insertOn, advanceSequences } from "../writes/WriteState.ts";
import { entryParameters, entryColumns, toEntry } from "../rows/ChatRows.ts";
import { batchStatement, namesOf, type Column } from "../rows/Statements.ts";
import { makeErasure } from "./ChatErasure.ts";

/** The number of records that an import inserts at a time. */
const batch = 200;

export const makeChatArchive = (pools: PgPools): ChatArchive["Service"] => {
  const exportRecords: ChatArchive["Service"]["export"] = (chatbot, actor, person) =>
    Effect.gen(function* () {
      const session = yield* pools.exportSession;
      const values = [chatbot, actor, exportDetail(person)];
      const auditRows = yield* insertOn(session)(chatbot, auditExport, values);
      if (auditRows.length === 0) return yield* new ChatbotNotFound({ chatbot });
      const userRef = person === undefined ? [] : [person.userRef];
      return session
        .stream<ExportRow>(exportOf(userRef), [chatbot, ...userRef])
        .pipe(Stream.mapAccum(() => 0, toRecords));
    }).pipe(
      Stream.unwrap,
      Stream.catch((error) => Stream.fromEffect(toStorageUnavailable(Effect.fail(error)))),
    );

  const importRecords = Effect.fn("ChatArchive.import")(
    function* <E, R>(chatbot: number, records: Stream.Stream<ArchiveRecord, E, R>, actor: string) {
      const { query, transaction } = yield* pools.exportSession;
      yield* query(chatbot, advanceSequences, [true]);
      // In a separate transaction, because an uncommitted row that references the chatbot would block renaming it.
      yield* query(chatbot, createCounter, [chatbot]).pipe(
        retryOnDeadlock,
        toChatbotNotFound(chatbot),
      );
      const inTransaction = Effect.gen(function* () {
        const [counter] = yield* query<{ readonly chats: bigint; readonly positions: bigint }>(
          chatbot,
          lockCounter,
          [chatbot],
        );
        if (counter === undefined) return yield* new ChatbotNotFound({ chatbot });
        if (counter.chats > 0n)
          return yield* new ImportRefused({ reason: "the chatbot already has chats" });
        yield* checkArchiveOrder(records).pipe(
          toImportRows(counter.positions),
          Stream.rechunk(batch),
          Stream.runForEachArray((rows) => {
            const chats = rows.flatMap((row) => ("chat" in row ? row : []));
            const entries = rows.flatMap((row) => ("entry" in row ? row : []));
            const inserts = [insertChats(chats, chatbot), insertEntries(entries, chatbot)];
            return Effect.forEach(inserts, ({ text, values }) => query(chatbot, text, values));
          }),
        );
        const [counterRow] = yield* query<{ readonly chats: number }>(chatbot, setCounter, [
          chatbot,
        ]);
        const chats = counterRow?.chats ?? 0;
        yield* query(chatbot, auditImport, [chatbot, actor, importDetail(chats)]);
        yield* query(chatbot, lockSequences);
        yield* query(chatbot, moveSequences, [chatbot]);
        return chats;
      });
      return yield* transaction(chatbot, inTransaction).pipe(
        Effect.catchIf(isUniqueViolation, () =>
          Effect.fail(new ImportRefused({ reason: "two entries have the same id" })),
        ),
      );
    },
    Effect.scoped,
    toStorageUnavailable,
  );

  const usage: ChatArchive["Service"]["usage"] = (chatbot, since, by = null) =>
    pools.exportSession.pipe(
      Effect.flatMap(({ query }) => query<UsageSum>(chatbot, sumUsage(by), [chatbot, time(since)])),
      Effect.scoped,
      toStorageUnavailable,
    );

  const erase = makeErasure(pools);
  return ChatArchive.of({ erase, export: exportRecords, import: importRecords, usage });
};

/** Returns a row's records: its chat, unless the previous row has the same chat, and its entry, if it has one. */
const toRecords = (
  chatBefore: number,
  row: ExportRow,
): readonly [number, ReadonlyArray<ArchiveRecord>] => {
  const { chat_time: createTime, in_chat: id, name, userRef } = row;
  const records: Array<ArchiveRecord> = [];
  if (id !== chatBefore) records.push({ _tag: "Chat", chat: { id, name, userRef, createTime } });
  if (row.id !== null) records.push({ _tag: "Entry", entry: toEntry(row), usage: row.usage });
  return [id, records];
};

interface ChatToImport {
  readonly chat: Chat;
  readonly position: bigint;
  readonly entries: number;
  readonly lastEntryTime: Date | null;
}

interface EntryToImport {
  readonly entry: Entry & NewEntry;
  readonly position: number;
}

/** Converts records to rows at positions after the given one. A chat comes after its entries, once they are counted. */
const toImportRows = (position: bigint) =>
  Stream.mapAccum(
    (): ChatToImport | null => null,
    (
      openChat,
      record: ArchiveRecord,
    ): readonly [ChatToImport, ReadonlyArray<ChatToImport | EntryToImport>] => {
      if (record._tag === "Chat") {
        const next = (openChat?.position ?? position) + 1n;
        const chat = { chat: record.chat, position: next, entries: 0, lastEntryTime: null };
        return [chat, openChat === null ? [] : [openChat]];
      }
      const entry = { ...record.entry, usage: record.usage };
      const entries = openChat!.entries + 1;
      const chat = { ...openChat!, entries, lastEntryTime: entry.createTime };
      return [chat, [{ entry, position: entries }]];
    },
    { onHalt: (openChat) => (openChat === null ? [] : [openChat]) },
  );

/** A chat without entries yields one row, in which the fields of the entry are null. */
type ExportRow = {
  readonly in_chat: Chat["id"];
  readonly chat_time: Date;
  readonly usage: Usage | null;
} & Pick<Chat, "name" | "userRef"> &
  (Entry | { readonly id: null });

// The join is lateral, so that every plan scans the chats and seeks their entries.
const exportOf = (userRef: ReadonlyArray<string>) => `
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

const createCounter = `
insert into chat_counter (chatbot_id, chats, positions, last_time) values ($1, 0, 0, 'epoch')
on conflict (chatbot_id) do nothing`;
const lockCounter = `select chats, positions from chat_counter where chatbot_id = $1 for update`;

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
  ["entries", "int8", ({ entries }) => BigInt(entries)],
  ["last_entry_time", "timestamptz", ({ lastEntryTime }) => time(lastEntryTime)],
]);
const insertEntries = insertInto<EntryToImport>("entry", [
  ["chat_id", "int8", ({ entry }) => BigInt(entry.chatId)],
  ["id", "int8", ({ entry }) => BigInt(entry.id)],
  ["position", "int8", ({ position }) => BigInt(position)],
  ["create_time", "timestamptz", ({ entry }) => time(entry.createTime)],
  ...entryParameters(({ entry }: EntryToImport) => entry),
]);

// The chatbot has no chats other than the imported ones, and their positions have no gaps.
const setCounter = `
update chat_counter set chats = newest.position - positions, positions = newest.position,
  last_time = greatest(last_time, newest.create_time)
from (select position, create_time from chat where chatbot_id = $1 order by position desc limit 1) newest
where chatbot_id = $1 returning chats::float8 as chats`;

// Imports set the sequences one import at a time, so that none sets a sequence back.
const lockSequences =
  "select pg_advisory_xact_lock(hashtextextended('parley.sequences.' || current_schema(), 0))";

// A sequence cannot be locked, so the margin covers the ids that other transactions draw between the read and the
// update. An unused sequence has a last value of 1, which is the next value to be drawn.
const moveSequences = `
select setval(sequence, greatest_id + 1000) from (
  select 'chat_id'::regclass as sequence, (select max(id) from chat where chatbot_id = $1) as greatest_id,
    (select last_value from chat_id) as last_id
  union all
  select 'entry_id', (select max(id) from entry where chatbot_id = $1), (select last_value from entry_id)
) sequences where greatest_id >= last_id`;

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
