import { PgTypes } from "@effect/sql-pg";
import {
  ChatbotDirectory,
  ChatbotRegistry,
  KeyTaken,
  type AuditRecord,
  type Chatbot,
  type ChatbotSettings,
  type KeyRecord,
  type Scope,
} from "@parley/core";
import { Context, Effect, Stream } from "effect";
import { Hex } from "effect/encoding";
import type { Clients } from "./Clients.ts";
import { channel } from "./Hints.ts";
import { array } from "./Parameters.ts";
import { orUnavailable } from "./Storage.ts";

/** The directory and the registry, which are two sides of the same tables. */
export const makeChatbots = (
  { reads, writes }: Clients,
  hints: (kind: string) => Stream.Stream<string | null>,
) => {
  const registry = ChatbotRegistry.of({
    list: Effect.all([
      reads.query<ChatbotRow>("operator", everyChatbot),
      reads.query<KeyRow & { readonly chatbot_id: number }>("operator", everyKey),
    ]).pipe(
      Effect.map(([chatbots, keys]) =>
        chatbots.map((row) => ({
          chatbot: chatbotOf(row),
          keys: keys.filter(({ chatbot_id }) => chatbot_id === row.chatbot_id).map(keyOf),
        })),
      ),
      orUnavailable,
    ),

    save: ({ description, keys, name, settings, workspaceName }, actor) =>
      writes
        .query<{ readonly id: number | null; readonly taken: string | null }>(
          "operator",
          saveChatbot,
          [
            workspaceName,
            name,
            description,
            PgTypes.jsonb(settings),
            actor,
            array(keys, "text", ({ id }) => id),
            array(keys, "text", ({ hash }) => Hex.encode(hash)),
            array(keys, "text", (key) => key.name),
            array(keys, "text", ({ scopes }) => scopes.join(",")),
            array(keys, "text", ({ expiresAt }) => expiresAt?.toISOString() ?? null),
            channel,
          ],
        )
        .pipe(
          // No row: another process made the chatbot meanwhile, and the next look sees it.
          Effect.repeat({ until: ([row]) => row !== undefined }),
          Effect.flatMap(([row]): Effect.Effect<Chatbot, KeyTaken> => {
            const { id, taken } = row!;
            return taken === null
              ? Effect.succeed({ id: id!, name, description, workspaceName, settings })
              : Effect.fail(new KeyTaken({ keyId: taken }));
          }),
          orUnavailable,
        ),

    revoke: (chatbot, keyId, actor) =>
      writes.query("operator", revokeKey, [chatbot, keyId, actor, channel]).pipe(
        Effect.map((rows) => rows.length > 0),
        orUnavailable,
      ),

    audit: (limit) =>
      reads.query<AuditRecord>("operator", newestAudit, [limit]).pipe(
        Effect.map((rows) => rows.map((row) => ({ ...row }))),
        orUnavailable,
      ),
  });

  const directory = ChatbotDirectory.of({
    open: (keyId) =>
      reads.query<ChatbotRow & KeyRow>({ key: keyId }, openKey, [keyId]).pipe(
        Effect.map(([row]) => {
          if (row === undefined) return null;
          const { expiresAt, hash, scopes } = keyOf(row);
          return { hash, scopes, expiresAt, chatbot: chatbotOf(row) };
        }),
        orUnavailable,
      ),
    changed: Stream.map(hints("changed"), (id) => (id === null ? null : Number(id))),
  });

  return Context.make(ChatbotRegistry, registry).pipe(Context.add(ChatbotDirectory, directory));
};

interface ChatbotRow {
  readonly chatbot_id: number;
  readonly chatbot_name: string;
  readonly description: string;
  readonly workspace_name: string;
  readonly settings: ChatbotSettings;
}

interface KeyRow {
  readonly id: string;
  readonly hash: Uint8Array;
  readonly name: string | null;
  readonly scopes: ReadonlyArray<Scope>;
  readonly expires_at: Date | null;
  readonly revoked_at: Date | null;
}

const chatbotOf = (row: ChatbotRow): Chatbot => ({
  id: row.chatbot_id,
  name: row.chatbot_name,
  description: row.description,
  workspaceName: row.workspace_name,
  settings: row.settings,
});

const keyOf = (row: KeyRow): KeyRecord & { readonly revokedAt: Date | null } => ({
  id: row.id,
  hash: row.hash,
  name: row.name,
  scopes: row.scopes,
  expiresAt: row.expires_at,
  revokedAt: row.revoked_at,
});

const chatbotColumns =
  "chatbot.id as chatbot_id, chatbot.name as chatbot_name, description, workspace_name, settings";
const keyColumns =
  "api_key.id, api_key.hash, api_key.name, api_key.scopes, api_key.expires_at, api_key.revoked_at";

const everyChatbot = `select ${chatbotColumns} from chatbot order by id`;
const everyKey = `select chatbot_id, ${keyColumns} from api_key order by created_at, id`;
const openKey = `
select ${chatbotColumns}, ${keyColumns}
from api_key join chatbot on chatbot.id = api_key.chatbot_id
where api_key.id = $1 and revoked_at is null`;
const newestAudit = `
select time, actor, chatbot_id as chatbot, action, detail from audit order by id desc limit $1::int8`;

// A revoked key stays revoked: a declaration that still names it must not revive it.
const saveChatbot = `
with known as (
  select id from chatbot where workspace_name = $1 and name = $2
), taken as (
  select id from api_key where id = any ($6::text[]) and chatbot_id is distinct from (select id from known)
  limit 1
), saved as (
  insert into chatbot (workspace_name, name, description, settings)
  select $1, $2, $3, $4::jsonb where not exists (select from taken)
  on conflict (workspace_name, name) do update set
    description = excluded.description, settings = excluded.settings
  where (chatbot.description, chatbot.settings) is distinct from (excluded.description, excluded.settings)
  returning id
), subject as (
  select id from saved union select id from known
), keys as (
  insert into api_key as k (id, chatbot_id, hash, name, scopes, expires_at)
  select i.id, subject.id, decode(i.hash, 'hex'), i.name, string_to_array(i.scopes, ','), i.expires_at::timestamptz
  from unnest($6::text[], $7::text[], $8::text[], $9::text[], $10::text[]) as i(id, hash, name, scopes, expires_at)
  cross join subject where not exists (select from taken)
  on conflict (id) do update set
    hash = excluded.hash, name = excluded.name, scopes = excluded.scopes, expires_at = excluded.expires_at
  where k.chatbot_id = excluded.chatbot_id and k.revoked_at is null
    and (k.hash, k.name, k.scopes, k.expires_at)
      is distinct from (excluded.hash, excluded.name, excluded.scopes, excluded.expires_at)
  returning k.id
), noted as (
  insert into audit (actor, chatbot_id, action, detail)
  select $5, subject.id, case when exists (select from known) then 'change' else 'create' end, $2
  from subject where exists (select from saved) or exists (select from keys)
  returning chatbot_id
)
select subject.id, taken.id as taken, (select pg_notify($11, 'changed:' || chatbot_id)::text from noted) as told
from subject full join taken on true`;

const revokeKey = `
with revoked as (
  update api_key set revoked_at = clock_timestamp()
  where chatbot_id = $1 and id = $2 and revoked_at is null
  returning chatbot_id, id
), noted as (
  insert into audit (actor, chatbot_id, action, detail)
  select $3, chatbot_id, 'revoke', id from revoked
  returning chatbot_id
)
select pg_notify($4, 'changed:' || chatbot_id)::text as told from noted`;
