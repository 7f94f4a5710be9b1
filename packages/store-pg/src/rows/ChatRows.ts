/**
 * The columns of chats and entries as they are read, under the core's names; and the columns of an entry to insert.
 */
import type { Entry, NewEntry } from "@parley/core/ports";
import { namesOf, type Column } from "./Statements.ts";

/** The columns of a chat. Ids are below 2^53, so they are exact as float8. */
export const chatColumns = (row: string) =>
  `${row}.id::float8 as id, ${row}.name, ${row}.user_ref as "userRef", ${row}.create_time as "createTime"`;

export const entryColumns = (row: string) => `
  ${row}.id::float8 as id, ${row}.chat_id::float8 as "chatId", ${row}.question, ${row}.answer, ${row}.moderation,
  ${row}.flagged, ${row}.create_time as "createTime"`;

/** The entry of a row that may have other columns, too. */
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

/** The tokens that an item's entry adds to what its API key has spent. */
export const spentColumn = <Item>(entryOf: (item: Item) => NewEntry | null): Column<Item> => [
  "spent_tokens",
  "int8",
  (item) => big(entryOf(item)?.spentTokens ?? undefined),
];

/** The columns of the items' entries; nulls for an absent entry. */
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
