/**
 * What operators write of chatbots and keys, each change with its line in the audit.
 */
import { PgTypes } from "@effect/sql-pg";
import {
  ChatbotNotFound,
  ChatbotRegistry,
  ChatbotTaken,
  defaultSettings,
  KeyNotFound,
  KeyTaken,
  WorkspaceNotFound,
  type AuditRecord,
  type Chatbot,
  type KeyRecord,
  type RegisteredKey,
  type Replaced,
  type Scope,
  type StorageUnavailable,
} from "@parley/core";
import { Effect } from "effect";
import { Hex } from "effect/encoding";
import type { SqlError } from "effect/sql";
import {
  chatbotColumns,
  chatbotOf,
  keyColumns,
  keyOf,
  type ChatbotRow,
  type KeyRow,
} from "./ChatbotRows.ts";
import type { PgPools } from "./database/PgPools.ts";
import { channel } from "./Hints.ts";
import { array, time, times } from "./Parameters.ts";
import { againAfterClash, againAfterUniqueViolation, orUnavailable } from "./Storage.ts";

export const makeChatbotRegistry = ({ reads, writes }: PgPools) => {
  /**
   * A statement about rows that another locks before it. One statement that did both would change them from what it
   * saw first, and could meet others that do the same in a deadlock.
   */
  const locked = <Row extends object>(
    lock: string,
    rows: ReadonlyArray<unknown>,
    text: string,
    values: ReadonlyArray<unknown>,
  ) =>
    writes.transaction(
      "operator",
      Effect.andThen(
        writes.query("operator", lock, rows),
        writes.query<Row>("operator", text, values),
      ),
    );

  return ChatbotRegistry.of({
    list: Effect.all([
      reads.query<ChatbotRow>("operator", everyChatbot),
      reads.query<KeyRow & { readonly chatbot_id: number }>("operator", everyKey),
    ]).pipe(
      Effect.map(([chatbots, keys]) => {
        const listed = chatbots.map((row) => ({
          chatbot: chatbotOf(row),
          keys: [] as Array<RegisteredKey>,
        }));
        const keysOf = new Map(listed.map(({ chatbot, keys }) => [chatbot.id, keys]));
        // One that was made between the two statements is not listed yet.
        for (const row of keys) keysOf.get(row.chatbot_id)?.push(keyOf(row));
        return listed;
      }),
      orUnavailable,
    ),

    create: ({ description, keys, name, settings, workspaceName }, actor) =>
      writes
        .query<{ readonly id: number | null; readonly taken: string | null }>(
          "operator",
          createChatbot,
          [
            workspaceName,
            name,
            description,
            PgTypes.jsonb(settings),
            actor,
            channel,
            ...keyArrays(keys),
          ],
        )
        .pipe(
          Effect.flatMap(([row]): Effect.Effect<Chatbot, ChatbotTaken | KeyTaken> => {
            const { id, taken } = row!;
            if (taken !== null) return Effect.fail(new KeyTaken({ keyId: taken }));
            if (id === null) return Effect.fail(new ChatbotTaken({ workspaceName, name }));
            return Effect.succeed({ id, name, description, workspaceName, settings });
          }),
          // Another made the chatbot or a key meanwhile: the next look tells which.
          againAfterUniqueViolation,
          againAfterClash,
          orUnavailable,
        ),

    change: (id, { description, name, settings = {}, workspaceName }, actor) =>
      locked<ChatbotRow & Taken>(lockChatbot, [id], changeChatbot, [
        id,
        workspaceName ?? null,
        name ?? null,
        description ?? null,
        PgTypes.jsonb(settings),
        actor,
        channel,
        PgTypes.jsonb(defaultSettings),
      ]).pipe(
        Effect.flatMap(([row]): Effect.Effect<Chatbot, ChatbotNotFound | ChatbotTaken> => {
          if (row === undefined) return Effect.fail(new ChatbotNotFound({ chatbot: id }));
          return row.taken === null ? Effect.succeed(chatbotOf(row)) : chatbotTaken(row);
        }),
        againAfterUniqueViolation,
        againAfterClash,
        orUnavailable,
      ),

    renameWorkspace: (from, to, actor) =>
      locked<{ readonly found: boolean } & Taken>(lockWorkspaces, [from, to], moveChatbots, [
        from,
        to,
        actor,
        channel,
      ]).pipe(
        Effect.flatMap(([row]): Effect.Effect<void, WorkspaceNotFound | ChatbotTaken> => {
          if (!row!.found) return Effect.fail(new WorkspaceNotFound({ workspaceName: from }));
          return row!.taken === null ? Effect.void : chatbotTaken(row!);
        }),
        againAfterUniqueViolation,
        againAfterClash,
        orUnavailable,
      ),

    addKey: (id, key, actor) =>
      writes
        .query<{ readonly found: boolean; readonly made: boolean }>("operator", addKey, [
          id,
          actor,
          channel,
          ...keyArrays([key]),
        ])
        .pipe(
          Effect.flatMap(([row]): Effect.Effect<void, ChatbotNotFound | KeyTaken> => {
            const { found, made } = row!;
            if (!found) return Effect.fail(new ChatbotNotFound({ chatbot: id }));
            return made ? Effect.void : Effect.fail(new KeyTaken({ keyId: key.id }));
          }),
          againAfterClash,
          orUnavailable,
        ),

    changeKey: (id, keyId, change, actor) =>
      locked(lockKey, [id, keyId], changeKey, [
        id,
        keyId,
        actor,
        channel,
        "name" in change,
        change.name ?? null,
        change.scopes?.join(",") ?? null,
        "expiresAt" in change,
        time(change.expiresAt ?? null),
      ]).pipe(orKeyNotFound(keyId)),

    replaceKey: (id, keyId, { expiresAt, hash, id: newId }, end, actor) =>
      locked<{
        readonly name: string | null;
        readonly scopes: ReadonlyArray<Scope>;
        readonly expires_at: Date;
        readonly taken: boolean;
      }>(lockKey, [id, keyId], replaceKey, [
        id,
        keyId,
        actor,
        channel,
        newId,
        Hex.encode(hash),
        time(expiresAt),
        time(end),
      ]).pipe(
        Effect.flatMap(([row]): Effect.Effect<Replaced, KeyNotFound | KeyTaken> => {
          if (row === undefined) return Effect.fail(new KeyNotFound({ keyId }));
          if (row.taken) return Effect.fail(new KeyTaken({ keyId: newId }));
          const { expires_at, name, scopes } = row;
          return Effect.succeed({ name, scopes, expiresAt: expires_at });
        }),
        againAfterUniqueViolation,
        againAfterClash,
        orUnavailable,
      ),

    revokeKey: (id, keyId, actor) =>
      writes.query("operator", revokeKey, [id, keyId, actor, channel]).pipe(orKeyNotFound(keyId)),

    audit: (limit) =>
      reads.query<AuditRecord>("operator", newestAudit, [limit]).pipe(
        Effect.map((rows) => rows.map((row) => ({ ...row }))),
        orUnavailable,
      ),
  });
};

/** Another chatbot that has the name already. */
interface Taken {
  readonly taken: string | null;
  readonly taken_in: string | null;
}

const chatbotTaken = ({ taken, taken_in }: Taken) =>
  Effect.fail(new ChatbotTaken({ workspaceName: taken_in!, name: taken! }));

/** The columns of new keys. */
const keyArrays = (keys: ReadonlyArray<KeyRecord>) => [
  array(keys, "text", ({ id }) => id),
  array(keys, "text", ({ hash }) => Hex.encode(hash)),
  array(keys, "text", ({ name }) => name),
  array(keys, "text", ({ scopes }) => scopes.join(",")),
  times(keys, ({ expiresAt }) => expiresAt),
];

/** No row: there is no such key, or it was revoked. */
const orKeyNotFound =
  (keyId: string) =>
  (
    changed: Effect.Effect<ReadonlyArray<object>, SqlError.SqlError>,
  ): Effect.Effect<void, KeyNotFound | StorageUnavailable> =>
    changed.pipe(
      Effect.flatMap((rows) =>
        rows.length > 0 ? Effect.void : Effect.fail(new KeyNotFound({ keyId })),
      ),
      orUnavailable,
    );

const everyChatbot = `select ${chatbotColumns} from chatbot order by id`;
const everyKey = `select chatbot_id, ${keyColumns} from api_key order by created_at, id`;
const newestAudit = `
select time, actor, chatbot_id as chatbot, action, detail from audit order by id desc limit $1::int8`;

/** SQL that tells other processes of the change that was noted, which runs only if it is read. */
const told = (channel: string) => `pg_notify(${channel}, 'changed:' || chatbot_id)::text`;

/** SQL for the new keys in five parameters from `$first` on. */
const newKeys = (first: number) => `
  select i.id, decode(i.hash, 'hex') as hash, i.name, string_to_array(i.scopes, ',') as scopes, i.expires_at, i.n
  from unnest($${first}::text[], $${first + 1}::text[], $${first + 2}::text[], $${first + 3}::text[],
    $${first + 4}::timestamptz[]) with ordinality as i(id, hash, name, scopes, expires_at, n)`;

const createChatbot = `
with input as (${newKeys(7)}
), named as (
  select from chatbot where workspace_name = $1 and name = $2
), taken as (
  select id from (
    select id from api_key where id in (select id from input)
    union all select id from input group by id having count(*) > 1
  ) used where not exists (select from named) limit 1
), made as (
  insert into chatbot (workspace_name, name, description, settings)
  select $1, $2, $3, $4::jsonb where not exists (select from taken) and not exists (select from named)
  returning id
), keys as (
  insert into api_key (id, chatbot_id, hash, name, scopes, expires_at)
  select input.id, made.id, hash, name, scopes, expires_at from made cross join input order by input.id
), noted as (
  insert into audit (actor, chatbot_id, action, detail)
  select $5, made.id, action, detail from made cross join (
    select 0 as n, 'create' as action, $2 as detail union all select n, 'add-key', id from input
  ) line order by n
  returning chatbot_id
)
select (select id from made) as id, (select id from taken) as taken,
  (select ${told("$6")} from noted limit 1) as told`;

// A key share lock, which rows that refer to a chatbot take, does not keep these waiting; changes of names wait for it.
const lockChatbot = "select from chatbot where id = $1 for no key update";
// Those of both names, so that of two renames that meet the second finds what the first left.
const lockWorkspaces =
  "select from chatbot where workspace_name in ($1, $2) order by id for no key update";
const lockKey = "select from api_key where chatbot_id = $1 and id = $2 for update";

const changeChatbot = `
with known as (
  select * from chatbot where id = $1
), taken as (
  select other.name as taken, other.workspace_name as taken_in from chatbot other join known
    on (other.workspace_name, other.name) = (coalesce($2, known.workspace_name), coalesce($3, known.name))
    and other.id <> known.id and coalesce($2, $3) is not null
), fields as (
  select string_agg(name, ', ' order by name collate "C") as names from (
    select field.name from known, lateral (values ('workspaceName', workspace_name, $2),
      ('name', known.name, $3), ('description', description, $4)) as field(name, before, after)
    where after <> before
    union all
    select key from known, jsonb_each($5::jsonb) where value is distinct from ($8::jsonb || settings) -> key
  ) changed
  where not exists (select from taken)
), saved as (
  update chatbot set workspace_name = coalesce($2, chatbot.workspace_name), name = coalesce($3, chatbot.name),
    description = coalesce($4, chatbot.description), settings = chatbot.settings || $5::jsonb
  from fields where chatbot.id = $1 and names is not null
  returning chatbot.*
), noted as (
  insert into audit (actor, chatbot_id, action, detail)
  select $6, $1, 'change', names from fields where names is not null
  returning chatbot_id
), chatbot as (
  select * from saved union all select * from known where not exists (select from saved)
)
select ${chatbotColumns}, taken, taken_in,
  (select ${told("$7")} from noted) as told
from chatbot left join taken on true`;

const moveChatbots = `
with known as (
  select id, name from chatbot where workspace_name = $1
), taken as (
  select other.name as taken, other.workspace_name as taken_in from chatbot other join known using (name)
  where other.workspace_name = $2 and $1 <> $2 limit 1
), moved as (
  update chatbot set workspace_name = $2 from known
  where chatbot.id = known.id and $1 <> $2 and not exists (select from taken)
  returning chatbot.id
), noted as (
  insert into audit (actor, chatbot_id, action, detail)
  select $3, id, 'change', 'workspaceName' from moved order by id
  returning chatbot_id
)
select exists (select from known) as found, taken, taken_in,
  (select count(${told("$4")}) from noted) as told
from (values (1)) one left join taken on true`;

const addKey = `
with input as (${newKeys(4)}
), subject as (
  select id from chatbot where id = $1
), made as (
  insert into api_key (id, chatbot_id, hash, name, scopes, expires_at)
  select input.id, subject.id, hash, name, scopes, expires_at from input cross join subject
  on conflict (id) do nothing
  returning id, chatbot_id
), noted as (
  insert into audit (actor, chatbot_id, action, detail)
  select $2, chatbot_id, 'add-key', id from made
  returning chatbot_id
)
select exists (select from subject) as found, exists (select from made) as made,
  (select ${told("$3")} from noted) as told`;

const changeKey = `
with known as (
  select * from api_key where chatbot_id = $1 and id = $2 and revoked_at is null
), fields as (
  select string_agg(field.name, ', ' order by field.name) as names from known, lateral (values
    ('expiresAt', $8::bool and expires_at is distinct from $9::timestamptz),
    ('name', $5::bool and known.name is distinct from $6::text),
    ('scopes', scopes <> string_to_array($7, ','))
  ) field(name, changes) where changes
), saved as (
  update api_key set name = case when $5::bool then $6::text else api_key.name end,
    scopes = coalesce(string_to_array($7, ','), api_key.scopes),
    expires_at = case when $8::bool then $9::timestamptz else api_key.expires_at end
  from fields where api_key.id = $2 and names is not null
), noted as (
  insert into audit (actor, chatbot_id, action, detail)
  select $3, $1, 'change-key', $2 || ': ' || names from fields where names is not null
  returning chatbot_id
)
select id, (select ${told("$4")} from noted) as told from known`;

const replaceKey = `
with old as (
  select * from api_key where chatbot_id = $1 and id = $2 and revoked_at is null
), taken as (
  select from api_key where id = $5
), made as (
  insert into api_key (id, chatbot_id, hash, name, scopes, expires_at)
  select $5, chatbot_id, decode($6, 'hex'), name, scopes, $7::timestamptz
  from old where not exists (select from taken)
  returning id, chatbot_id
), ended as (
  update api_key set expires_at = $8::timestamptz from old cross join made
  where api_key.id = old.id and (old.expires_at is null or old.expires_at > $8::timestamptz)
  returning api_key.id, api_key.chatbot_id
), noted as (
  insert into audit (actor, chatbot_id, action, detail)
  select $3, chatbot_id, action, detail from (
    select 1 as n, chatbot_id, 'add-key' as action, id as detail from made
    union all select 2, chatbot_id, 'change-key', id || ': expiresAt' from ended
  ) line order by n
  returning chatbot_id
)
select name, scopes, least(expires_at, $8::timestamptz) as expires_at, exists (select from taken) as taken,
  (select ${told("$4")} from noted limit 1) as told
from old`;

const revokeKey = `
with revoked as (
  update api_key set revoked_at = clock_timestamp()
  where chatbot_id = $1 and id = $2 and revoked_at is null
  returning chatbot_id, id
), noted as (
  insert into audit (actor, chatbot_id, action, detail)
  select $3, chatbot_id, 'revoke-key', id from revoked
  returning chatbot_id
)
select ${told("$4")} as told from noted`;
