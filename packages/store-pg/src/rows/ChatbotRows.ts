/**
 * Rows of chatbots, their keys and the audit log: the verbs of the registry as statements.
 */
import { PgTypes } from "@effect/sql-pg";
import {
  boundsOf,
  defaultSettings,
  type AuditRecord,
  type Chatbot,
  type ChatbotId,
  type ChatbotSettings,
  type ColdTx,
  type Expiries,
  type KeyBounds,
  type RegisteredChatbot,
  type RegisteredKey,
} from "@parley/core/ports";
import { Effect } from "effect";
import { array, millisNow, texts, time } from "../connections/PgParams.ts";
import type { VerbQuery } from "../connections/Session.ts";

interface ChatbotRow {
  readonly chatbot_id: ChatbotId;
  readonly chatbot_name: string;
  readonly description: string;
  readonly workspace_name: string;
  readonly settings: ChatbotSettings;
}

const toChatbot = (row: ChatbotRow): Chatbot => ({
  id: row.chatbot_id,
  workspaceName: row.workspace_name,
  name: row.chatbot_name,
  description: row.description,
  // The row may have been written before a setting existed.
  settings: { ...defaultSettings, ...row.settings },
});

interface ApiKeyRow extends Omit<RegisteredKey, keyof KeyBounds> {
  readonly bounds: Partial<KeyBounds>;
}

/** Picks the key from a row that may also have the columns of its chatbot. */
const toKey = (row: ApiKeyRow): RegisteredKey => ({
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

export const registryVerbs = (queryOf: VerbQuery) => {
  const query = <Row extends object>(text: string, values: ReadonlyArray<unknown> = []) =>
    queryOf<Row>("operator", text, values);
  const first = <Row extends object>(text: string, values: ReadonlyArray<unknown>) =>
    Effect.map(query<Row>(text, values), ([row]) => row ?? null);
  return {
    chatbots: (id) =>
      Effect.map(
        query<ChatbotRow & (ApiKeyRow | { readonly id: null })>(selectChatbots, [id]),
        (rows) => {
          const chatbots = new Map<number, { chatbot: Chatbot; keys: Array<RegisteredKey> }>();
          for (const row of rows) {
            const item = chatbots.get(row.chatbot_id) ?? { chatbot: toChatbot(row), keys: [] };
            if (row.id !== null) item.keys.push(toKey(row));
            chatbots.set(row.chatbot_id, item);
          }
          return [...chatbots.values()] satisfies ReadonlyArray<RegisteredChatbot>;
        },
      ),
    chatbot: (id) =>
      Effect.map(first<ChatbotRow>(selectChatbot, [id]), (row) => row && toChatbot(row)),
    expiries: () => Effect.map(query<Expiries>(selectExpiries), ([row]) => row!),
    grant: (keyId) =>
      Effect.map(
        first<ChatbotRow & ApiKeyRow & { readonly now: number }>(selectGrant, [keyId]),
        (row) => row && { key: toKey(row), chatbot: toChatbot(row), now: row.now },
      ),
    auditLog: (limit, userRef) =>
      userRef === undefined
        ? query<AuditRecord>(newestAudit, [limit])
        : query<AuditRecord>(auditOfUser, [userRef]),
    audit: (entries) =>
      Effect.asVoid(
        query(insertAudit, [
          array(entries, "text", ({ actor }) => actor),
          array(entries, "int4", ({ chatbot }) => chatbot),
          array(entries, "text", ({ action }) => action),
          array(entries, "text", ({ detail }) => detail),
        ]),
      ),
    chatbotNamed: (workspaceName, name) =>
      Effect.map(
        first<{ readonly id: ChatbotId }>(selectNamed, [workspaceName, name]),
        (row) => row && row.id,
      ),
    insertChatbot: ({ description, name, settings, workspaceName }) => {
      const values = [workspaceName, name, description, PgTypes.jsonb(settings)];
      return Effect.map(first<{ readonly id: ChatbotId }>(insertChatbot, values), (row) => row!.id);
    },
    setChatbot: ({ description, id, name, settings, workspaceName }) =>
      Effect.asVoid(
        query(updateChatbot, [id, workspaceName, name, description, PgTypes.jsonb(settings)]),
      ),
    // Foreign keys and a trigger delete the chatbot's other rows, except those in the audit log.
    deleteChatbot: (id) => Effect.asVoid(query("delete from chatbot where id = $1", [id])),
    takenKeyIds: (ids) =>
      Effect.map(query<{ readonly id: string }>(selectKeyIds, [texts(ids)]), (rows) =>
        rows.map(({ id }) => id),
      ),
    apiKey: (chatbot, id) =>
      Effect.map(first<ApiKeyRow>(selectKey, [chatbot, id]), (row) => row && toKey(row)),
    insertApiKeys: (chatbot, keys) =>
      Effect.forEach(
        keys,
        (key) => query(insertKey, [...keyValues(key), chatbot, key.hash, time(key.createdAt)]),
        { discard: true },
      ),
    setApiKey: (key) => Effect.asVoid(query(updateKey, [...keyValues(key), time(key.revokedAt)])),
  } satisfies Partial<ColdTx>;
};

const keyValues = (key: RegisteredKey) => [
  key.id,
  key.name,
  texts(key.scopes),
  time(key.expiresAt),
  PgTypes.jsonb(boundsOf(key)),
];

const chatbotColumns =
  "chatbot.id as chatbot_id, chatbot.name as chatbot_name, description, workspace_name, settings";
const keyColumns = `api_key.id, api_key.hash, api_key.name, api_key.scopes,
  api_key.expires_at as "expiresAt", api_key.bounds, api_key.created_at as "createdAt",
  api_key.revoked_at as "revokedAt", api_key.last_used_at as "lastUsedAt"`;

const selectChatbots = `
select ${chatbotColumns}, ${keyColumns} from chatbot left join api_key on chatbot_id = chatbot.id
where $1::int is null or chatbot.id = $1 order by chatbot.id, created_at, api_key.id`;
const selectChatbot = `select ${chatbotColumns} from chatbot where id = $1`;
const selectExpiries = `
select
  array(select id from chatbot where settings ->> 'retentionDays' is not null order by id) as chatbots, (
    select min(expires_at) from api_key where revoked_at is null and expires_at > clock_timestamp()
  ) as "nextKey"`;
const selectGrant = `
select ${chatbotColumns}, ${keyColumns}, ${millisNow} as now
from api_key join chatbot on chatbot.id = api_key.chatbot_id
where api_key.id = $1`;
const selectNamed = "select id from chatbot where workspace_name = $1 and name = $2";
const insertChatbot = `
insert into chatbot (workspace_name, name, description, settings) values ($1, $2, $3, $4::jsonb)
returning id`;
const updateChatbot = `
update chatbot set workspace_name = $2, name = $3, description = $4, settings = $5::jsonb
where id = $1`;

const selectKeyIds = "select id from api_key where id = any ($1::text[])";
const selectKey = `select ${keyColumns} from api_key where chatbot_id = $1 and id = $2`;
const insertKey = `
insert into api_key (id, name, scopes, expires_at, bounds, chatbot_id, hash, created_at)
values ($1, $2, $3, $4::timestamptz, $5::jsonb, $6, $7, $8::timestamptz)`;
// Bounds that another version of Parley has stored stay as they are.
const updateKey = `
update api_key set name = $2, scopes = $3, expires_at = $4::timestamptz, bounds = bounds || $5::jsonb,
  revoked_at = $6::timestamptz
where id = $1`;

const insertAudit = `
insert into audit (actor, chatbot_id, action, detail)
select * from unnest($1::text[], $2::int[], $3::text[], $4::text[])`;
const newestAudit = `
select time, actor, chatbot_id as chatbot, action, detail from audit order by id desc limit $1::int8`;

/** The end of a detail is `sha256:`, 32 digits of salt, a colon and 64 digits of a hash: see `Administration.person`. */
const auditOfUser = `
select time, actor, chatbot_id as chatbot, action, detail from audit
where detail like '%sha256:%'
  and right(detail, 64) = encode(sha256(convert_to(left(right(detail, 97), 32) || ':' || $1::text, 'UTF8')), 'hex')
order by id desc`;

/** Updates the time of the last use of keys, to the minute. */
export const recordUses = `
update api_key set last_used_at = clock_timestamp()
where id = any ($1::text[])
  and (last_used_at is null or last_used_at < clock_timestamp() - interval '59 seconds')`;
