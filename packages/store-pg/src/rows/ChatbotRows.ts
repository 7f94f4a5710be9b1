/**
 * Rows of chatbots and their keys.
 */
import {
  defaultSettings,
  type Chatbot,
  type ChatbotSettings,
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

/** Picks the key from a row that may also have the columns of its chatbot. */
export const toKey = (row: RegisteredKey): RegisteredKey => ({
  id: row.id,
  hash: row.hash,
  name: row.name,
  scopes: row.scopes,
  expiresAt: row.expiresAt,
  ratePerMinute: row.ratePerMinute,
  signingSecret: row.signingSecret,
  visitorRatePerMinute: row.visitorRatePerMinute,
  tokensPerDay: row.tokensPerDay,
  origins: row.origins,
  anonymous: row.anonymous,
  createdAt: row.createdAt,
  revokedAt: row.revokedAt,
  lastUsedAt: row.lastUsedAt,
});

export const chatbotColumns =
  "chatbot.id as chatbot_id, chatbot.name as chatbot_name, description, workspace_name, settings";
export const keyColumns = `api_key.id, api_key.hash, api_key.name, api_key.scopes,
  api_key.expires_at as "expiresAt", api_key.rate_per_minute as "ratePerMinute",
  api_key.signing_secret as "signingSecret", api_key.visitor_rate_per_minute as "visitorRatePerMinute",
  api_key.tokens_per_day::float8 as "tokensPerDay", api_key.origins, api_key.anonymous,
  api_key.created_at as "createdAt", api_key.revoked_at as "revokedAt", api_key.last_used_at as "lastUsedAt"`;
