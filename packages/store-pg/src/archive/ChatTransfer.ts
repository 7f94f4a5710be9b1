/**
 * Moves all chats of a chatbot out of the store and into it, record by record.
 */
import {
  ChatbotNotFound,
  fold,
  importDetail,
  ImportRefused,
  checkArchiveOrder,
  type ArchiveRecord,
  type Chat,
  type ChatArchive,
  type Entry,
  type NewEntry,
} from "@parley/core";
import { Effect, Stream } from "effect";
import type { PgPools } from "../database/PgPools.ts";
import type { Session } from "../database/TenantSession.ts";
import {
  newEntryArrays,
  newEntryColumns,
  newEntryParameters,
  usageOf,
  type UsageRow,
} from "../NewEntries.ts";
import { array, times } from "../Parameters.ts";
import { chatOf, entryOf, type ChatRow, type EntryRow } from "../Rows.ts";
import {
  againAfterClash,
  isUniqueViolation,
  orChatbotNotFound,
  orUnavailable,
} from "../database/PgErrors.ts";

/** Records that one statement of an import takes; fewer if their texts are longer, as no message may have a GB. */
const importBatch = 200;
const importLength = 10_000_000;

export const makeTransfer = ({
  transfer,
}: PgPools): Pick<ChatArchive["Service"], "export" | "import"> => {
  const importChats = (
    session: Session,
    chatbot: number,
    before: bigint,
    chats: ReadonlyArray<ChatToImport>,
  ) =>
    session.query(chatbot, insertChats, [
      chatbot,
      before,
      array(chats, "int8", ({ chat }) => BigInt(chat.id)),
      array(chats, "text", ({ chat }) => chat.name),
      array(chats, "text", ({ chat }) => chat.userRef),
      array(chats, "text", ({ chat }) => (chat.name === null ? null : fold(chat.name))),
      times(chats, ({ chat }) => chat.createTime),
      array(chats, "int8", ({ entries }) => BigInt(entries)),
      times(chats, ({ lastEntryTime }) => lastEntryTime),
    ]);

  const importEntries = (
    session: Session,
    chatbot: number,
    entries: ReadonlyArray<EntryToImport>,
  ) =>
    session.query(chatbot, insertEntries, [
      chatbot,
      array(entries, "int8", ({ entry }) => BigInt(entry.chatId)),
      array(entries, "int8", ({ entry }) => BigInt(entry.id)),
      array(entries, "int8", ({ position }) => BigInt(position)),
      times(entries, ({ entry }) => entry.createTime),
      ...newEntryArrays(entries, ({ entry }) => entry),
    ]);

  return {
    export: (chatbot, actor) =>
      Stream.unwrap(
        Effect.gen(function* () {
          const session = yield* transfer;
          const audited = yield* session.query(chatbot, auditExport, [chatbot, actor]);
          if (audited.length === 0) return yield* new ChatbotNotFound({ chatbot });
          return session.stream<ExportRow>(chatbot, everything, [chatbot]).pipe(
            Stream.mapAccum(
              () => 0n,
              (seen: bigint, row: ExportRow): readonly [bigint, ReadonlyArray<ArchiveRecord>] => {
                const records: Array<ArchiveRecord> = [];
                if (row.chat_id !== seen) {
                  const { chat_id: id, chat_time: create_time, name, user_ref } = row;
                  records.push({ _tag: "Chat", chat: chatOf({ id, name, user_ref, create_time }) });
                }
                if (row.id !== null) {
                  records.push({
                    _tag: "Entry",
                    entry: entryOf(row as EntryRow),
                    usage: usageOf(row),
                  });
                }
                return [row.chat_id, records];
              },
            ),
          );
        }),
      ).pipe(streamOrUnavailable),

    import: Effect.fnUntraced(function* (chatbot, records, actor) {
      const refuse = (reason: string) => Effect.fail(new ImportRefused({ reason }));
      let chats = 0;
      let highestEntry = 0;
      /** The chat whose entries come; it is stored when they are counted. */
      let open: ChatToImport | null = null;
      // Read outside the transaction: the records may come from the same database.
      const queue = yield* Stream.toQueue(Stream.rechunk(checkArchiveOrder(records), importBatch), {
        capacity: importBatch,
      });
      const session = yield* orUnavailable(transfer);
      // By itself: a row that refers to the chatbot keeps it from being renamed until it is committed.
      yield* session
        .query(chatbot, makeCounter, [chatbot])
        .pipe(againAfterClash, orChatbotNotFound(chatbot), orUnavailable);
      const inTransaction = Effect.gen(function* () {
        const [counter] = yield* session.query<{
          readonly chats: bigint;
          readonly positions: bigint;
        }>(chatbot, lockCounter, [chatbot]);
        if (counter === undefined) return yield* new ChatbotNotFound({ chatbot });
        if (counter.chats > 0n) return yield* refuse("the chatbot has chats");
        const store = Effect.fnUntraced(function* (
          newChats: ReadonlyArray<ChatToImport>,
          newEntries: ReadonlyArray<EntryToImport>,
        ) {
          if (newChats.length > 0) {
            yield* importChats(session, chatbot, counter.positions + BigInt(chats), newChats);
            chats += newChats.length;
          }
          for (const some of byLength(newEntries)) yield* importEntries(session, chatbot, some);
        });
        yield* Stream.runForEachArray(
          Stream.rechunk(Stream.fromQueue(queue), importBatch),
          (some) => {
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
            return store(newChats, newEntries);
          },
        );
        if (open !== null) yield* store([open], []);
        yield* session.query(chatbot, auditImport, [chatbot, actor, importDetail(chats)]);
        yield* session.query(chatbot, lockSequences);
        yield* session.query(chatbot, settleCounter, [
          chatbot,
          chats,
          open?.chat.id ?? 0,
          highestEntry,
        ]);
        return chats;
      });
      return yield* session.transaction(chatbot, inTransaction).pipe(
        Effect.catchIf(isUniqueViolation, () => refuse("two entries have one id")),
        orUnavailable,
      );
    }, Effect.scoped),
  };
};

/** In groups whose texts are not much longer than so many code units together. */
export const byLength = <A extends { readonly entry: NewEntry }>(
  entries: ReadonlyArray<A>,
  most = importLength,
): ReadonlyArray<ReadonlyArray<A>> => {
  const groups: Array<Array<A>> = [];
  let length = Infinity;
  for (const one of entries) {
    if (length > most) {
      groups.push([]);
      length = 0;
    }
    groups.at(-1)!.push(one);
    const { answer, moderation, question, usage } = one.entry;
    for (const text of [question, answer, moderation, usage?.provider, usage?.model])
      length += text?.length ?? 0;
  }
  return groups;
};

type ChatToImport = { readonly chat: Chat; entries: number; lastEntryTime: Date | null };
type EntryToImport = {
  readonly entry: Entry & NewEntry;
  readonly position: number;
};

/** A chat without entries is one row of nulls beside it. */
type ExportRow = {
  readonly chat_id: bigint;
  readonly chat_time: Date;
} & UsageRow &
  Pick<ChatRow, "name" | "user_ref"> &
  (Omit<EntryRow, "chat_id"> | { readonly id: null });

// Lateral: whatever the planner thinks of the tables, it goes through the chats and seeks their entries.
const everything = `
select chat.id as chat_id, chat.name, chat.user_ref, chat.create_time as chat_time, entry.*
from chat left join lateral (
  select id, create_time, position, ${newEntryColumns}
  from entry where chatbot_id = $1 and chat_id = chat.id order by position
) entry on true
where chat.chatbot_id = $1
order by chat.position, entry.position`;

const auditExport = `
insert into audit (chatbot_id, actor, action, detail) select id, $2, 'export', '' from chatbot where id = $1
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

const insertEntries = `
insert into entry (chatbot_id, chat_id, id, position, create_time, ${newEntryColumns})
select $1, * from unnest($2::int8[], $3::int8[], $4::int8[], $5::timestamptz[], ${newEntryParameters(6, "[]")})`;

// Imports set the sequences one after the other, or one would set them back.
const lockSequences =
  "select pg_advisory_xact_lock(hashtextextended('parley.sequences.' || current_schema(), 0))";

// A sequence cannot be locked: the margin covers what others draw between its reading and its setting. One that
// nothing was drawn from says 1, which is still to come.
const settleCounter = `
with moved as (
  select case when $3::int8 >= (select last_value from chat_id) then setval('chat_id', $3::int8 + 1000) end,
    case when $4::int8 >= (select last_value from entry_id) then setval('entry_id', $4::int8 + 1000) end
)
update chat_counter set chats = chats + $2::int8, positions = positions + $2::int8,
  last_time = greatest(
    last_time, (select create_time from chat where chatbot_id = $1 order by position desc limit 1))
from moved where chatbot_id = $1`;

const streamOrUnavailable = <A>(stream: Stream.Stream<A, any>) =>
  Stream.catch(stream, (error) => Stream.fromEffect(orUnavailable(Effect.fail(error))));
