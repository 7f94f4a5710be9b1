/**
 * Columns of chats and entries: as they are read, under the names of the core, and those of an entry to insert.
 */
import type { Entry, NewEntry } from "@parley/core";
import { array, type ArrayType } from "../database/PgParams.ts";

/** The columns of a chat. Ids are below 2^53, so that they are exact as float8. */
export const chatColumns = (row: string) =>
  `${row}.id::float8 as id, ${row}.name, ${row}.user_ref as "userRef", ${row}.create_time as "createTime"`;

/** The columns of an entry. */
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

type Value = string | boolean | number | bigint | null;

const big = (count: number | undefined) => (count === undefined ? null : BigInt(count));

const columns: ReadonlyArray<
  readonly [name: string, type: ArrayType, value: (entry: NewEntry) => Value | undefined]
> = [
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
  ["key_id", "text", ({ keyId }) => keyId],
];

export const newEntryColumns = columns.map(([name]) => name).join(", ");

/** SQL for one parameter of each column, from `$first`; with brackets for an array of each. */
export const newEntryParameters = (first: number, brackets: "" | "[]" = "") =>
  columns.map(([, type], at) => `$${first + at}::${type}${brackets}`).join(", ");

export const newEntryValues = (entry: NewEntry) =>
  columns.map(([, , value]) => value(entry) ?? null);

/** An array for each column; nulls for an absent entry. */
export const newEntryArrays = (entries: ReadonlyArray<NewEntry | null>) =>
  columns.map(([, type, value]) =>
    array(entries, type, (entry) => (entry === null ? null : (value(entry) ?? null))),
  );
