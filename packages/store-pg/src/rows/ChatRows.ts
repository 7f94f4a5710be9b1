/**
 * The columns that are read from chats and entries, under the core's names, and the columns of a new entry.
 */
import type { Chat, ChatQuery, Entry, EntryQuery, NewEntry } from "@parley/core/ports";
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
