/**
 * The columns that are read from chats and entries, under the core's names, the columns of a new entry, and the verbs
 * that change what exists.
 */
import {
  fold,
  type Chat,
  type ChatQuery,
  type ColdTx,
  type Entry,
  type EntryQuery,
  type NewEntry,
  type VisitorErasures,
} from "@parley/core/ports";
import { Effect } from "effect";
import type { VerbQuery } from "../connections/Session.ts";
import { namesOf, type Column } from "./Statements.ts";

/** Returns the columns of a chat. Ids are below 2^53, so float8 represents them exactly. */
export const chatColumns = (row: string) =>
  `${row}.id::float8 as id, ${row}.name, ${row}.user_ref as "userRef", ${row}.create_time as "createTime"`;

/** Returns the columns of a chat, and of its activity if the query includes it. */
export const chatColumnsOf = (row: string, { include }: Pick<ChatQuery, "include">) =>
  include.length === 0
    ? chatColumns(row)
    : `${chatColumns(row)}, coalesce(${row}.last_entry_time, ${row}.create_time) as "lastEntryTime",
  ${row}.entries::float8 as entries`;

/** Picks the chat from a row that may also have other columns. */
export const toChat = (row: Chat): Chat => ({
  id: row.id,
  name: row.name,
  userRef: row.userRef,
  createTime: row.createTime,
  ...(row.lastEntryTime && { lastEntryTime: row.lastEntryTime, entries: row.entries! }),
});

/** Returns the columns of an entry, and of what the reader has asked for in addition. */
export const entryColumns = (row: string, include: EntryQuery["include"] = []) => `
  ${row}.id::float8 as id, ${row}.chat_id::float8 as "chatId", ${row}.question, ${row}.answer, ${row}.moderation,
  ${row}.flagged, ${row}.create_time as "createTime"${include.includes("metadata") ? `, ${row}.metadata` : ""}${
    include.includes("feedback") ? `, ${row}.rating, ${row}.comment` : ""
  }`;

export const everything = ["metadata", "feedback"] as const;

export type StoredEntry = Omit<Entry, "metadata"> & { readonly metadata?: string | null };

/** Picks the entry from a row that may also have other columns. */
export const toEntry = (row: StoredEntry): Entry => ({
  id: row.id,
  chatId: row.chatId,
  question: row.question,
  answer: row.answer,
  moderation: row.moderation,
  flagged: row.flagged,
  createTime: row.createTime,
  ...(row.metadata !== undefined && { metadata: row.metadata && JSON.parse(row.metadata) }),
  ...(row.rating !== undefined && { rating: row.rating, comment: row.comment! }),
});

/** Returns an entry as it is right after its append. */
export const toNewEntry = (
  row: Omit<StoredEntry, "metadata">,
  { metadata = null }: NewEntry,
): Entry => ({ ...toEntry(row), metadata, rating: null, comment: null });

const big = (count: number | undefined) => (count === undefined ? null : BigInt(count));

const columns: ReadonlyArray<Column<NewEntry>> = [
  ["question", "text", ({ question }) => question],
  ["answer", "text", ({ answer }) => answer],
  ["moderation", "text", ({ moderation }) => moderation],
  ["flagged", "bool", ({ flagged }) => flagged],
  ["provider", "text", ({ usage }) => usage?.provider],
  ["model", "text", ({ usage }) => usage?.model],
  ["prompt_tokens", "int8", ({ usage }) => big(usage?.promptTokens)],
  ["completion_tokens", "int8", ({ usage }) => big(usage?.completionTokens)],
  ["attempts", "int4", ({ usage }) => usage?.attempts],
  ["latency_millis", "int8", ({ usage }) => big(usage?.latencyMillis)],
  ["key_id", "text", ({ apiKeyId }) => apiKeyId],
  ["metadata", "text", ({ metadata }) => metadata && JSON.stringify(metadata)],
  ["request_id", "text", ({ requestId }) => requestId],
];

export const newEntryNames = namesOf(columns);

/** Returns the column with the tokens that an item's entry adds to its API key's spending. */
export const spentColumn = <Item>(entryOf: (item: Item) => NewEntry | null): Column<Item> => [
  "spent_tokens",
  "int8",
  (item) => big(entryOf(item)?.spentTokens ?? undefined),
];

/** Returns the columns of the items' entries, which are null for an item without an entry. */
export const entryParameters = <Item>(
  entryOf: (item: Item) => NewEntry | null,
): ReadonlyArray<Column<Item>> =>
  columns.map(([name, type, value]) => {
    const ofItem = (item: Item) => {
      const entry = entryOf(item);
      return entry && value(entry);
    };
    return [name, type, ofItem];
  });

export const chatVerbs = (query: VerbQuery) => {
  const chatOf = ([row]: ReadonlyArray<Chat>) => (row === undefined ? null : toChat(row));
  return {
    ownChat: (...values) => Effect.map(query<Chat>(values[0], selectChat, values), chatOf),
    renameChat: (chatbot, id, name, visitor) =>
      Effect.map(
        query<Chat>(chatbot, rename, [chatbot, id, visitor, name, name && fold(name)]),
        chatOf,
      ),
    rateEntry: (chatbot, chat, id, { comment, rating }) =>
      Effect.map(
        query<StoredEntry>(chatbot, rate, [
          chatbot,
          chat,
          id,
          rating !== undefined,
          rating ?? null,
          comment !== undefined,
          comment ?? null,
        ]),
        ([row]) => (row === undefined ? null : toEntry(row)),
      ),
    countVisitorErasure: (...values) => Effect.asVoid(query(values[0], countErasure, values)),
    visitorErasures: (limit) => query<VisitorErasures>("operator", newestErasures, [limit]),
  } satisfies Partial<ColdTx>;
};

const isOwn = `chat.chatbot_id = $1 and chat.id = $2::int8 and ($3::text is null or chat.user_ref = $3)`;
const selectChat = `select ${chatColumns("chat")} from chat where ${isOwn}`;
const rename = `
update chat set name = $4::text, folded_name = $5::text where ${isOwn} returning ${chatColumns("chat")}`;

const rate = `
update entry set rating = case when $4::bool then $5::text else rating end,
  comment = case when $6::bool then $7::text else comment end
where chatbot_id = $1 and chat_id = $2::int8 and id = $3::int8
returning ${entryColumns("entry", everything)}`;

const countErasure = `
insert into visitor_erasure as today (chatbot_id, key_id, day, time, chats)
values ($1, $2, (clock_timestamp() at time zone 'UTC')::date, clock_timestamp(), 1)
on conflict (chatbot_id, key_id, day) do update set time = excluded.time, chats = today.chats + 1`;
const newestErasures = `
select chatbot_id as chatbot, key_id as "apiKeyId", time, chats from visitor_erasure
order by time desc, chatbot_id, key_id limit $1::int8`;
