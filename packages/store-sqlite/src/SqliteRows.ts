/**
 * Reads and writes rows of chats, entries and the audit log.
 */
import {
  type ChatbotId,
  type ChatId,
  type AuditRecord,
  type Chat,
  ChatbotNotFound,
  type Entry,
  type Usage,
} from "@parley/core/ports";
import type { Database } from "./SqliteDatabase.ts";

export const chatColumns = "id, name, userRef, createTime";
export type ChatRow = Omit<Chat, "createTime"> & { readonly createTime: number };
export const toChat = (row: ChatRow): Chat => ({ ...row, createTime: new Date(row.createTime) });

export const entryColumns = "id, chatId, question, answer, moderation, flagged, createTime";
export type EntryRow = Omit<Entry, "createTime" | "flagged"> & {
  readonly createTime: number;
  readonly flagged: number;
};
export const toEntry = (row: EntryRow): Entry => ({
  ...row,
  flagged: row.flagged === 1,
  createTime: new Date(row.createTime),
});

/** Returns a new id. Ids are never reused, even after the newest chat is erased, so `max(id) + 1` would not do. */
export const nextId = ({ get }: Database, kind: "chat" | "entry"): number =>
  get<{ last: number }>("UPDATE sequences SET last = last + 1 WHERE kind = :kind RETURNING last", {
    kind,
  })!.last;

/**
 * Returns the current time or, if later, the time of the previous chat or entry: the clock may have gone back, or an
 * import may have stored a later time.
 */
export const nextTime = (
  { get }: Database,
  chatbot: ChatbotId,
  chat: ChatId | null,
  now: number,
): Date => {
  const before = get<{ time: number | null }>(
    chat === null
      ? `SELECT time FROM newest WHERE chatbot = :chatbot`
      : `SELECT max(createTime, coalesce((SELECT createTime FROM entries
           WHERE chatbot = :chatbot AND chatId = :chat ORDER BY id DESC LIMIT 1), createTime)) AS time
         FROM chats WHERE chatbot = :chatbot AND id = :chat`,
    { chatbot, chat },
  );
  return new Date(Math.max(now, before?.time ?? now));
};

export const insertChat = ({ run }: Database, chatbot: number, chat: Chat): Chat => {
  const { createTime, ...row } = chat;
  const values = { chatbot, ...row, time: createTime.getTime() };
  run(
    `INSERT INTO chats (chatbot, ${chatColumns}) VALUES (:chatbot, :id, :name, :userRef, :time)`,
    values,
  );
  run(
    `INSERT INTO newest (chatbot, time) VALUES (:chatbot, :time)
     ON CONFLICT DO UPDATE SET time = max(time, excluded.time)`,
    values,
  );
  return chat;
};

export const insertEntry = (
  { run }: Database,
  chatbot: number,
  { createTime, flagged, ...row }: Entry,
  usage: Usage | null,
  apiKeyId: string | null = null,
): void => {
  run(
    `INSERT INTO entries (chatbot, ${entryColumns}, usage, apiKeyId)
     VALUES (:chatbot, :id, :chatId, :question, :answer, :moderation, :flagged, :time, :usage, :apiKeyId)`,
    {
      chatbot,
      ...row,
      flagged: flagged ? 1 : 0,
      time: createTime.getTime(),
      usage: usage && JSON.stringify(usage),
      apiKeyId,
    },
  );
};

/**
 * Ends the turns of a chat and of an idempotency key, whose leases must have ended. The chat's reservation for a
 * waiting instance begins when the lease ends.
 */
export const endExpiredTurns = (
  { run }: Database,
  values: { readonly chatbot: number; readonly chat: number | null; readonly key: string | null },
): void => {
  const which = "turns.chatbot = :chatbot AND (turns.chat = :chat OR turns.idempotencyKey = :key)";
  run(
    `UPDATE chats SET turnEnded = heldUntil FROM turns
     WHERE chats.chatbot = turns.chatbot AND chats.id = turns.chat AND ${which}`,
    values,
  );
  run(`DELETE FROM turns WHERE ${which}`, values);
};

/** Whether the chat exists and, if a `visitor` is given, belongs to that visitor. */
export const chatExists = (
  { get }: Database,
  chatbot: ChatbotId,
  chat: ChatId,
  visitor: string | null = null,
): boolean =>
  get(
    `SELECT 1 FROM chats WHERE chatbot = :chatbot AND id = :chat
     AND (:visitor IS NULL OR userRef = :visitor)`,
    { chatbot, chat, visitor },
  ) !== undefined;

/** Returns the error if the chatbot is not registered. */
export const chatbotMissing = ({ get }: Database, chatbot: number): ChatbotNotFound | undefined =>
  get("SELECT 1 FROM chatbots WHERE id = :chatbot", { chatbot }) === undefined
    ? new ChatbotNotFound({ chatbot })
    : undefined;

export const insertAudit = ({ run }: Database, entry: Omit<AuditRecord, "time">, time: number) => {
  run(
    `INSERT INTO audit (time, actor, chatbot, action, detail)
     VALUES (:time, :actor, :chatbot, :action, :detail)`,
    { ...entry, time },
  );
};
