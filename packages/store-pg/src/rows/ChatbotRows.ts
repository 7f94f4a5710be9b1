/**
 * Rows of chatbots and their keys.
 */
import {
  defaultSettings,
  type Chatbot,
  type ChatbotSettings,
  type RegisteredKey,
  type Scope,
} from "@parley/core";

export interface ChatbotRow {
  readonly chatbot_id: number;
  readonly chatbot_name: string;
  readonly description: string;
  readonly workspace_name: string;
  readonly settings: ChatbotSettings;
}

export interface KeyRow {
  readonly id: string;
  readonly hash: Uint8Array;
  readonly name: string | null;
  readonly scopes: ReadonlyArray<Scope>;
  readonly expires_at: Date | null;
  readonly rate_per_minute: number | null;
  readonly revoked_at: Date | null;
  readonly created_at: Date;
  readonly last_used_at: Date | null;
}

export const toChatbot = (row: ChatbotRow): Chatbot => ({
  id: row.chatbot_id,
  name: row.chatbot_name,
  description: row.description,
  workspaceName: row.workspace_name,
  // A row may be older than a setting.
  settings: { ...defaultSettings, ...row.settings },
});

export const toKey = (row: KeyRow): RegisteredKey => ({
  id: row.id,
  hash: row.hash,
  name: row.name,
  scopes: row.scopes,
  expiresAt: row.expires_at,
  ratePerMinute: row.rate_per_minute,
  createdAt: row.created_at,
  revokedAt: row.revoked_at,
  lastUsedAt: row.last_used_at,
});

export const chatbotColumns =
  "chatbot.id as chatbot_id, chatbot.name as chatbot_name, description, workspace_name, settings";
export const keyColumns = `api_key.id, api_key.hash, api_key.name, api_key.scopes, api_key.expires_at,
  api_key.rate_per_minute, api_key.created_at, api_key.revoked_at, api_key.last_used_at`;
