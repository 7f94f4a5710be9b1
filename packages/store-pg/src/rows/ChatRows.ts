/**
 * Rows of chats and entries: as they are read, and the columns of an entry to insert. Ids and counts arrive as bigint
 * and are below 2^53.
 */
import type { Chat, Entry, NewEntry, Usage } from "@parley/core";
import { array, type ArrayType } from "../database/PgParams.ts";

export interface ChatRow {
  readonly id: bigint;
  readonly name: string | null;
  readonly user_ref: string | null;
  readonly create_time: Date;
}

export const chatColumns = "id, name, user_ref, create_time";

export const toChat = (row: ChatRow): Chat => ({
  id: Number(row.id),
  name: row.name,
  userRef: row.user_ref,
  createTime: row.create_time,
});

export interface EntryRow {
  readonly id: bigint;
  readonly chat_id: bigint;
  readonly question: string;
  readonly answer: string;
  readonly moderation: string;
  readonly flagged: boolean;
  readonly create_time: Date;
}

export const entryColumns = "id, chat_id, question, answer, moderation, flagged, create_time";

export const toEntry = (row: EntryRow): Entry => ({
  id: Number(row.id),
  chatId: Number(row.chat_id),
  question: row.question,
  answer: row.answer,
  moderation: row.moderation,
  flagged: row.flagged,
  createTime: row.create_time,
});

/** The columns of usage, which are all null if there is none. */
export interface UsageRow {
  readonly provider: string | null;
  readonly model: string | null;
  readonly prompt_tokens: bigint | null;
  readonly completion_tokens: bigint | null;
  readonly attempts: number | null;
  readonly latency_millis: bigint | null;
}

export const toUsage = (row: UsageRow): Usage | null =>
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
