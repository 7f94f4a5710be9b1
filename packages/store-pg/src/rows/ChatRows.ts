/**
 * Rows of chats. Ids and counts arrive as bigint and are below 2^53.
 */
import type { Chat } from "@parley/core";

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
