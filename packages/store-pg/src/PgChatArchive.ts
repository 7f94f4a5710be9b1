import {
  ChatArchive,
  fold,
  ImportRefused,
  inOrder,
  type ArchiveRecord,
  type Chat,
  type Entry,
  type Erasable,
  type Usage,
  type UsageSum,
} from "@parley/core";
import { Effect, Stream } from "effect";
import type { Clients } from "./Clients.ts";
import { addHoles } from "./Holes.ts";
import { setMilestones, takeOffErased, type Erased } from "./Milestones.ts";
import { array, big, time, times } from "./Parameters.ts";
import { forgetAsks } from "./RequestKeys.ts";
import { chatOf, entryOf, type ChatRow, type EntryRow } from "./Rows.ts";
import { againAfterDeadlock, isUniqueViolation, withoutDeadline } from "./Storage.ts";

/** Chats that an erasure looks at and erases at a time; fewer if they have more than so many entries. */
const batch = 1_000;
const batchEntries = 100_000;

/** Records that one statement of an import takes. */
const importBatch = 200;

export const makeChatArchive = ({ archives, patient }: Clients): ChatArchive["Service"] => {
  /** The next chats that may have to be erased; they are looked for without a lock. */
  const find = Effect.fnUntraced(function* (
    chatbot: number,
    which: Exclude<Erasable, { readonly _tag: "Chat" }>,
    after: bigint,
    last: bigint,
  ) {
    const [found] = yield* patient.query<Found>(
      chatbot,
      which._tag === "UserRef" ? findUser : findIdle,
      [chatbot, after, batch, which._tag === "UserRef" ? which.userRef : time(which.limit), last],
    );
    return found!;
  });

  /** The last position that was given by now: who goes on creating does not keep an erasure from its end. */
  const lastPosition = (chatbot: number) =>
    Effect.map(
      patient.query<{ readonly positions: bigint }>(chatbot, positionsOf, [chatbot]),
      ([tally]) => tally?.positions ?? 0n,
    );

  /**
   * Erases those that are still to be erased. Only a statement that comes after the locks sees what was
   * appended while they were waited for. Creations wait for the last statement alone.
   */
  const eraseSome = (chatbot: number, ids: ReadonlyArray<bigint>, limit: Date | null) =>
    patient.transaction(
      chatbot,
      Effect.gen(function* () {
        const doomed = yield* patient.query<Doomed>(chatbot, lockChats, [
          chatbot,
          array(ids, "int8", (id) => id),
          time(limit),
        ]);
        const turns = doomed.flatMap(({ turn }) => turn ?? []);
        if (turns.length > 0) {
          yield* patient.query(chatbot, forgetAsks, [
            chatbot,
            array(turns, "text", (turn) => turn),
          ]);
        }
        if (doomed.length > 0) {
          const chats = array(doomed, "int8", ({ id }) => id);
          yield* patient.query(chatbot, lockRequests, [chatbot, chats]);
          yield* patient.query(chatbot, eraseChats, [chatbot, chats]);
          yield* takeOffErased(patient, chatbot, doomed);
          yield* patient.query(chatbot, countErased, [
            chatbot,
            array(doomed, "int8", ({ position }) => position),
          ]);
        }
        return doomed.length;
      }),
    );

  const importChats = (chatbot: number, before: bigint, chats: ReadonlyArray<ChatToImport>) =>
    archives.query(chatbot, insertChats, [
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

  const importEntries = (chatbot: number, entries: ReadonlyArray<EntryToImport>) =>
    archives.query(chatbot, insertEntries, [
      chatbot,
      array(entries, "int8", ({ entry }) => BigInt(entry.chatId)),
      array(entries, "int8", ({ entry }) => BigInt(entry.id)),
      array(entries, "int8", ({ position }) => BigInt(position)),
      array(entries, "text", ({ entry }) => entry.question),
      array(entries, "text", ({ entry }) => entry.answer),
      array(entries, "text", ({ entry }) => entry.moderation),
      array(entries, "bool", ({ entry }) => entry.flagged),
      times(entries, ({ entry }) => entry.createTime),
      array(entries, "text", ({ usage }) => usage?.provider ?? null),
      array(entries, "text", ({ usage }) => usage?.model ?? null),
      array(entries, "int8", ({ usage }) => big(usage?.promptTokens)),
      array(entries, "int8", ({ usage }) => big(usage?.completionTokens)),
      array(entries, "int4", ({ usage }) => usage?.attempts ?? null),
      array(entries, "int8", ({ usage }) => big(usage?.latencyMillis)),
    ]);

  return ChatArchive.of({
    erase: (chatbot, which) =>
      Effect.gen(function* () {
        const limit = which._tag === "IdleSince" ? which.limit : null;
        const erase = (ids: ReadonlyArray<bigint>) =>
          againAfterDeadlock(eraseSome(chatbot, ids, limit));
        if (which._tag === "Chat") return yield* erase([BigInt(which.id)]);
        const last = yield* lastPosition(chatbot);
        let total = 0;
        let after: bigint | null = 0n;
        while (after !== null) {
          const { ids, reached }: Found = yield* find(chatbot, which, after, last);
          if (ids !== null) total += yield* erase(ids);
          after = reached;
        }
        return total;
      }).pipe(withoutDeadline),

    // What is deleted stays in the pages until then, in the indexes, and in the statistics.
    compact: Effect.gen(function* () {
      for (const table of erasedFrom) {
        yield* patient.command(`vacuum (analyze, index_cleanup on) ${table}`);
      }
      const [server] = yield* patient.query<{ readonly version: number }>("operator", versionOf);
      if (server!.version >= 180_000)
        yield* patient.query("operator", clearStatistics, [erasedFrom]);
    }).pipe(withoutDeadline),

    export: (chatbot) =>
      archives.stream<ExportRow>(chatbot, everything, [chatbot]).pipe(
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
        streamOrUnavailable,
      ),

    import: Effect.fnUntraced(function* (chatbot, records) {
      const refuse = (reason: string) => Effect.fail(new ImportRefused({ reason }));
      let chats = 0;
      let highestEntry = 0;
      /** The chat whose entries come; it is stored when they are counted. */
      let open: ChatToImport | null = null;
      // Read outside the transaction: the records may come from the same database.
      const queue = yield* Stream.toQueue(Stream.rechunk(inOrder(records), importBatch), {
        capacity: importBatch,
      });
      // By itself: a row that refers to the chatbot keeps it from being renamed until it is committed.
      yield* withoutDeadline(archives.query(chatbot, makeTally, [chatbot]));
      const inTransaction = Effect.gen(function* () {
        const [tally] = yield* archives.query<{
          readonly chats: bigint;
          readonly positions: bigint;
        }>(chatbot, lockTally, [chatbot]);
        if (tally!.chats > 0n) return yield* refuse("the chatbot has chats");
        const store = Effect.fnUntraced(function* (
          newChats: ReadonlyArray<ChatToImport>,
          newEntries: ReadonlyArray<EntryToImport>,
        ) {
          if (newChats.length > 0) {
            yield* importChats(chatbot, tally!.positions + BigInt(chats), newChats);
            chats += newChats.length;
          }
          if (newEntries.length > 0) yield* importEntries(chatbot, newEntries);
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
                newEntries.push({ ...record, position: open!.entries });
              }
            }
            return store(newChats, newEntries);
          },
        );
        if (open !== null) yield* store([open], []);
        yield* archives.query(chatbot, lockSequences);
        yield* archives.query(chatbot, settleTally, [
          chatbot,
          chats,
          open?.chat.id ?? 0,
          highestEntry,
        ]);
        return chats;
      });
      const imported = yield* archives.transaction(chatbot, inTransaction).pipe(
        Effect.catchIf(isUniqueViolation, () => refuse("two entries have one id")),
        withoutDeadline,
      );
      // Searches are planned by what is known of the tables.
      for (const table of ["chat", "entry"])
        yield* Effect.ignore(patient.command(`analyze ${table}`));
      yield* setMilestones(patient, chatbot);
      return imported;
    }, Effect.scoped),

    usage: (chatbot, since) =>
      patient.query<UsageRow>(chatbot, sumUsage, [chatbot, time(since)]).pipe(
        Effect.map((rows) => rows.map(usageSumOf)),
        withoutDeadline,
      ),
  });
};

type ChatToImport = { readonly chat: Chat; entries: number; lastEntryTime: Date | null };
type EntryToImport = {
  readonly entry: Entry;
  readonly usage: Usage | null;
  readonly position: number;
};

/** A chat without entries is one row of nulls beside it. */
type ExportRow = {
  readonly chat_id: bigint;
  readonly chat_time: Date;
  readonly provider: string | null;
  readonly model: string | null;
  readonly prompt_tokens: bigint | null;
  readonly completion_tokens: bigint | null;
  readonly attempts: number | null;
  readonly latency_millis: bigint | null;
} & Pick<ChatRow, "name" | "user_ref"> &
  (Omit<EntryRow, "chat_id"> | { readonly id: null });

const usageOf = (row: ExportRow): Usage | null =>
  row.provider === null
    ? null
    : {
        provider: row.provider,
        model: row.model!,
        promptTokens: Number(row.prompt_tokens),
        completionTokens: Number(row.completion_tokens),
        attempts: row.attempts!,
        latencyMillis: Number(row.latency_millis),
      };

interface UsageRow {
  readonly provider: string;
  readonly model: string;
  readonly answers: bigint;
  readonly attempts: bigint;
  readonly prompt_tokens: string;
  readonly completion_tokens: string;
}

const usageSumOf = (row: UsageRow): UsageSum => ({
  provider: row.provider,
  model: row.model,
  answers: Number(row.answers),
  attempts: Number(row.attempts),
  promptTokens: Number(row.prompt_tokens),
  completionTokens: Number(row.completion_tokens),
});

/** A chat to erase; its turn is of an ask under way, or of one that was never ended. */
type Doomed = Erased & { readonly id: bigint; readonly turn: string | null };

/** Chats that were looked at: those that may have to be erased, and how far it went if there may be more. */
interface Found {
  readonly ids: ReadonlyArray<bigint> | null;
  readonly reached: bigint | null;
}

const versionOf = "select current_setting('server_version_num')::int4 as version";

/** Where anything of a chat is. */
const erasedFrom = ["chat", "entry", "request"];

// ANALYZE leaves those of an empty table as they were. Who may not maintain it may not VACUUM it, either.
const clearStatistics = `
select pg_clear_attribute_stats(current_schema()::text, relname::text, attname::text, false)
from pg_class join pg_attribute on attrelid = pg_class.oid
where relnamespace = current_schema()::regnamespace and relname = any ($1::text[]) and reltuples = 0
  and attnum > 0 and not attisdropped and has_table_privilege(pg_class.oid, 'maintain')`;

const positionsOf = "select positions from tally where chatbot_id = $1";

/** The next chats, until they have so many entries. */
const next = (filter: string) => `(
  select * from (
    select *, sum(entries) over (order by position) - entries as entries_before from (
      select id, position, create_time, last_entry_time, entries from chat
      where chatbot_id = $1 and position > $2::int8 and position <= $5::int8 ${filter} order by position limit $3::int8
    ) nearest
  ) counted where entries_before < ${batchEntries}
) looked`;

const findUser = `
select array_agg(id order by position) as ids, max(position) as reached from ${next("and user_ref = $4")}`;

// Times of creation follow positions: after the first chat that is too young there is none to erase.
const findIdle = `
select array_agg(id order by position) filter (where greatest(last_entry_time, create_time) < $4::timestamptz) as ids,
  case when max(create_time) < $4::timestamptz then max(position) end as reached
from ${next("")}`;

// In the order of the ids, which is that of positions. Each is looked up by itself (`offset 0`), whatever the planner
// thinks of the chatbot: it knows that of the average one.
const lockChats = `
select chat.* from unnest($2::int8[]) wanted cross join lateral (
  select id, position, name, user_ref, turn from chat
  where chatbot_id = $1 and id = wanted
    and ($3::timestamptz is null or greatest(last_entry_time, create_time) < $3::timestamptz)
  offset 0 for update
) chat`;

// In the order in which creations take them, too.
const lockRequests = `
select from unnest(array(
  select key from unnest($2::int8[]) wanted cross join lateral (
    select key from request where chatbot_id = $1 and chat_id = wanted offset 0
  ) theirs order by key
)) found(name) cross join lateral (
  select from request where chatbot_id = $1 and key = name offset 0 for update
) locked`;

const eraseChats = `
with entries as (
  delete from entry where chatbot_id = $1 and chat_id = any ($2::int8[])
), requests as (
  delete from request where chatbot_id = $1 and chat_id = any ($2::int8[])
)
delete from chat where chatbot_id = $1 and id = any ($2::int8[])`;

// The tally's row is locked last, because creations wait for it, and before the holes, because other
// erasures add some, too.
const countErased = `
with counted as (
  update tally set chats = chats - cardinality($2::int8[]), erasures = erasures + 1
  where chatbot_id = $1 returning chatbot_id
), gone as (
  select chatbot_id, position from counted cross join unnest($2::int8[]) position
)${addHoles}`;

// Lateral: whatever the planner thinks of the tables, it goes through the chats and seeks their entries.
const everything = `
select chat.id as chat_id, chat.name, chat.user_ref, chat.create_time as chat_time, entry.*
from chat left join lateral (
  select id, question, answer, moderation, flagged, create_time,
    provider, model, prompt_tokens, completion_tokens, attempts, latency_millis, position
  from entry where chatbot_id = $1 and chat_id = chat.id order by position
) entry on true
where chat.chatbot_id = $1
order by chat.position, entry.position`;

const makeTally = `
insert into tally (chatbot_id, chats, positions, last_time) values ($1, 0, 0, 'epoch')
on conflict (chatbot_id) do nothing`;
const lockTally = `select chats, positions from tally where chatbot_id = $1 for update`;

const insertChats = `
insert into chat (chatbot_id, id, position, name, user_ref, folded_name, create_time, entries, last_entry_time)
select $1, i.id, $2::int8 + n, name, user_ref, folded_name, create_time, entries, last_entry_time
from unnest($3::int8[], $4::text[], $5::text[], $6::text[], $7::timestamptz[], $8::int8[], $9::timestamptz[])
  with ordinality as i(id, name, user_ref, folded_name, create_time, entries, last_entry_time, n)`;

const insertEntries = `
insert into entry (chatbot_id, chat_id, id, position, question, answer, moderation, flagged, create_time,
  provider, model, prompt_tokens, completion_tokens, attempts, latency_millis)
select $1, * from unnest($2::int8[], $3::int8[], $4::int8[], $5::text[], $6::text[], $7::text[], $8::bool[],
  $9::timestamptz[], $10::text[], $11::text[], $12::int8[], $13::int8[], $14::int4[], $15::int8[])`;

// Imports set the sequences one after the other, or one would set them back.
const lockSequences =
  "select pg_advisory_xact_lock(hashtextextended('parley.sequences.' || current_schema(), 0))";

// A sequence cannot be locked: the margin covers what others draw between its reading and its setting. One that
// nothing was drawn from says 1, which is still to come.
const settleTally = `
with moved as (
  select case when $3::int8 >= (select last_value from chat_id) then setval('chat_id', $3::int8 + 1000) end,
    case when $4::int8 >= (select last_value from entry_id) then setval('entry_id', $4::int8 + 1000) end
)
update tally set chats = chats + $2::int8, positions = positions + $2::int8,
  last_time = greatest(
    last_time, (select create_time from chat where chatbot_id = $1 order by position desc limit 1))
from moved where chatbot_id = $1`;

const sumUsage = `
select provider, model, count(*) as answers, sum(attempts) as attempts,
  sum(prompt_tokens)::text as prompt_tokens, sum(completion_tokens)::text as completion_tokens
from entry where chatbot_id = $1 and create_time >= $2::timestamptz and provider is not null
group by provider, model order by provider, model`;

const streamOrUnavailable = <A>(stream: Stream.Stream<A, any>) =>
  Stream.catch(stream, (error) => Stream.fromEffect(withoutDeadline(Effect.fail(error))));
