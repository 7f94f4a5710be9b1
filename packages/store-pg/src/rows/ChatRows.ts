/**
 * The columns that are read from chats and entries, under the core's names, and the columns of a new entry.
 */
import type { Entry, NewEntry } from "@parley/core/ports";
import { namesOf, type Column } from "./Statements.ts";

/** Returns the columns of a chat. Ids are below 2^53, so float8 represents them exactly. */
export const chatColumns = (row: string) =>
  `${row}.id::float8 as id, ${row}.name, ${row}.user_ref as "userRef", ${row}.create_time as "createTime"`;

export const entryColumns = (row: string) => `
  ${row}.id::float8 as id, ${row}.chat_id::float8 as "chatId", ${row}.question, ${row}.answer, ${row}.moderation,
  ${row}.flagged, ${row}.create_time as "createTime"`;

/** Picks the entry from a row that may also have other columns. */
export const toEntry = (row: Entry): Entry => ({
  id: row.id,
  chatId: row.chatId,
  question: row.question,
  answer: row.answer,
  moderation: row.moderation,
  flagged: row.flagged,
  createTime: row.createTime,
});

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
