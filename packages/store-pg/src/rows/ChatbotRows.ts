/**
 * Rows of chatbots and their keys.
 */
import {
  boundsOf,
  defaultSettings,
  type Chatbot,
  type ChatbotSettings,
  type KeyBounds,
  type RegisteredKey,
} from "@parley/core/ports";

export interface ChatbotRow {
  readonly chatbot_id: Chatbot["id"];
  readonly chatbot_name: string;
  readonly description: string;
  readonly workspace_name: string;
  readonly settings: ChatbotSettings;
}

export const toChatbot = (row: ChatbotRow): Chatbot => ({
  id: row.chatbot_id,
  workspaceName: row.workspace_name,
  name: row.chatbot_name,
  description: row.description,
  // The row may have been written before a setting existed.
  settings: { ...defaultSettings, ...row.settings },
});

export interface KeyRow extends Omit<RegisteredKey, keyof KeyBounds> {
  readonly bounds: Partial<KeyBounds>;
}

/** Picks the key from a row that may also have the columns of its chatbot. */
export const toKey = (row: KeyRow): RegisteredKey => ({
  id: row.id,
  hash: row.hash,
  name: row.name,
  scopes: row.scopes,
  expiresAt: row.expiresAt,
  ...boundsOf(row.bounds),
  createdAt: row.createdAt,
  revokedAt: row.revokedAt,
  lastUsedAt: row.lastUsedAt,
});

export const chatbotColumns =
  "chatbot.id as chatbot_id, chatbot.name as chatbot_name, description, workspace_name, settings";
export const keyColumns = `api_key.id, api_key.hash, api_key.name, api_key.scopes,
  api_key.expires_at as "expiresAt", api_key.bounds, api_key.created_at as "createdAt",
  api_key.revoked_at as "revokedAt", api_key.last_used_at as "lastUsedAt"`;
