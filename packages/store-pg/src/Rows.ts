/**
 * The one mapping from rows to the core's records. Ids and counts come as bigint and stay below 2^53.
 */
import type { Chat, Entry } from "@parley/core";

export interface ChatRow {
  readonly id: bigint;
  readonly name: string | null;
  readonly user_ref: string | null;
  readonly create_time: Date;
}

export interface EntryRow {
  readonly id: bigint;
  readonly chat_id: bigint;
  readonly question: string;
  readonly answer: string;
  readonly moderation: string;
  readonly flagged: boolean;
  readonly create_time: Date;
}

export const chatColumns = "id, name, user_ref, create_time";
export const entryColumns = "id, chat_id, question, answer, moderation, flagged, create_time";

export const chatOf = (row: ChatRow): Chat => ({
  id: Number(row.id),
  name: row.name,
  userRef: row.user_ref,
  createTime: row.create_time,
});

export const entryOf = (row: EntryRow): Entry => ({
  id: Number(row.id),
  chatId: Number(row.chat_id),
  question: row.question,
  answer: row.answer,
  moderation: row.moderation,
  flagged: row.flagged,
  createTime: row.create_time,
});
