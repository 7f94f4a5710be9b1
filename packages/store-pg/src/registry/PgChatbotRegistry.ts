/**
 * Chatbots and keys as operators change them, each change with its line in the audit.
 */
import { PgTypes } from "@effect/sql-pg";
import {
  changedFields,
  ChatbotNotFound,
  ChatbotRegistry,
  ChatbotTaken,
  KeyNotFound,
  KeyTaken,
  WorkspaceNotFound,
  WorkspaceTaken,
  type AuditRecord,
  type KeyRecord,
  type RegisteredKey,
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
} from "../ChatbotRows.ts";
import type { PgPools } from "../database/PgPools.ts";
import { channel } from "../database/Notifications.ts";
import { array, time, times } from "../Parameters.ts";
import { againAfterClash, againAfterLock, orUnavailable } from "../database/PgErrors.ts";

/** A line of the audit to be. */
type Line = Pick<AuditRecord, "chatbot" | "action" | "detail">;

export const makeChatbotRegistry = ({ reads, writes }: PgPools) => {
  const query = <Row extends object>(text: string, values: ReadonlyArray<unknown> = []) =>
    writes.query<Row>("operator", text, values);

  /** Writes come one after the other: each sees everything that the one before it left. */
  const write = <A, E>(work: Effect.Effect<A, E | SqlError.SqlError>) =>
    writes
      .transaction("operator", Effect.andThen(query(lockRegistry), work))
      .pipe(againAfterClash, againAfterLock, orUnavailable);

  const chatbotWith = (id: number) =>
    Effect.flatMap(query<ChatbotRow>(oneChatbot, [id]), ([row]) =>
      row === undefined
        ? Effect.fail(new ChatbotNotFound({ chatbot: id }))
        : Effect.succeed(chatbotOf(row)),
    );

  /** A key that was not revoked. */
  const keyWith = (chatbot: number, keyId: string) =>
    Effect.flatMap(query<KeyRow>(oneKey, [chatbot, keyId]), ([row]) =>
      row === undefined ? Effect.fail(new KeyNotFound({ keyId })) : Effect.succeed(keyOf(row)),
    );

  const mustBeFree = (workspaceName: string, name: string) =>
    Effect.flatMap(query(named, [workspaceName, name]), (rows) =>
      rows.length > 0 ? Effect.fail(new ChatbotTaken({ workspaceName, name })) : Effect.void,
    );

  const insertKeys = Effect.fnUntraced(function* (chatbot: number, keys: ReadonlyArray<KeyRecord>) {
    const made = yield* query<{ readonly id: string }>(addKeys, [
      chatbot,
      array(keys, "text", ({ id }) => id),
      array(keys, "text", ({ hash }) => Hex.encode(hash)),
      array(keys, "text", ({ name }) => name),
      array(keys, "text", ({ scopes }) => scopes.join(",")),
      times(keys, ({ expiresAt }) => expiresAt),
    ]);
    const left = new Set(made.map(({ id }) => id));
    // An id that is named twice is taken the second time.
    const taken = keys.find(({ id }) => !left.delete(id));
    if (taken !== undefined) return yield* new KeyTaken({ keyId: taken.id });
  });

  const updateKey = (
    { id }: RegisteredKey,
    { expiresAt, name, scopes }: Pick<KeyRecord, "expiresAt" | "name" | "scopes">,
  ) => query(changeKey, [id, name, scopes.join(","), time(expiresAt)]);

  /** Writes the lines, and tells other processes once of each chatbot when the transaction commits. */
  const note = (actor: string, lines: ReadonlyArray<Line>) =>
    query(noteChanges, [
      actor,
      array(lines, "int4", ({ chatbot }) => chatbot),
      array(lines, "text", ({ action }) => action),
      array(lines, "text", ({ detail }) => detail),
      channel,
    ]);

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
        // A chatbot that was created between the two statements is not listed yet.
        for (const row of keys) keysOf.get(row.chatbot_id)?.push(keyOf(row));
        return listed;
      }),
      orUnavailable,
    ),

    create: ({ description, keys, name, settings, workspaceName }, actor) =>
      write(
        Effect.gen(function* () {
          yield* mustBeFree(workspaceName, name);
          const values = [workspaceName, name, description, PgTypes.jsonb(settings)];
          const [made] = yield* query<{ readonly id: number }>(addChatbot, values);
          const { id } = made!;
          yield* insertKeys(id, keys);
          yield* note(actor, [
            { chatbot: id, action: "create", detail: name },
            ...keys.map((key): Line => ({ chatbot: id, action: "add-key", detail: key.id })),
          ]);
          return { id, name, description, workspaceName, settings };
        }),
      ),

    change: (id, change, actor) =>
      write(
        Effect.gen(function* () {
          const before = yield* chatbotWith(id);
          const settings = { ...before.settings, ...change.settings };
          const after = { ...before, ...change, settings };
          const { description, name, workspaceName } = after;
          if (name !== before.name || workspaceName !== before.workspaceName) {
            yield* mustBeFree(workspaceName, name);
          }
          const fields = changedFields(before, change);
          if (fields.length === 0) return before;
          // Only the named settings: another version may know more of them.
          const named = PgTypes.jsonb(change.settings ?? {});
          yield* query(changeChatbot, [id, workspaceName, name, description, named]);
          yield* note(actor, [{ chatbot: id, action: "change", detail: fields.join(", ") }]);
          return after;
        }),
      ),

    renameWorkspace: (from, to, { merge }, actor) =>
      write(
        Effect.gen(function* () {
          const moving = (yield* query<ChatbotRow>(inWorkspace, [from])).map(chatbotOf);
          if (moving.length === 0) return yield* new WorkspaceNotFound({ workspaceName: from });
          if (from === to) return;
          const there = (yield* query<ChatbotRow>(inWorkspace, [to])).map(
            ({ chatbot_name }) => chatbot_name,
          );
          if (there.length > 0 && !merge) return yield* new WorkspaceTaken({ workspaceName: to });
          const taken = moving.find(({ name }) => there.includes(name));
          if (taken !== undefined) {
            return yield* new ChatbotTaken({ workspaceName: to, name: taken.name });
          }
          yield* query(moveChatbots, [from, to]);
          yield* note(
            actor,
            moving.map(({ id }): Line => ({
              chatbot: id,
              action: "change",
              detail: "workspaceName",
            })),
          );
        }),
      ),

    delete: (id, actor) =>
      write(
        Effect.gen(function* () {
          const { name } = yield* chatbotWith(id);
          // Its keys and what is left of its chats go with it, by the foreign keys.
          yield* query(deleteChatbot, [id]);
          yield* note(actor, [{ chatbot: id, action: "delete", detail: name }]);
        }),
      ),

    addKey: (id, key, actor) =>
      write(
        Effect.gen(function* () {
          yield* chatbotWith(id);
          yield* insertKeys(id, [key]);
          yield* note(actor, [{ chatbot: id, action: "add-key", detail: key.id }]);
        }),
      ),

    changeKey: (id, keyId, change, actor) =>
      write(
        Effect.gen(function* () {
          const before = yield* keyWith(id, keyId);
          const fields = changedFields(before, change);
          if (fields.length === 0) return;
          yield* updateKey(before, { ...before, ...change });
          const detail = `${keyId}: ${fields.join(", ")}`;
          yield* note(actor, [{ chatbot: id, action: "change-key", detail }]);
        }),
      ),

    replaceKey: (id, keyId, replacement, end, actor) =>
      write(
        Effect.gen(function* () {
          const old = yield* keyWith(id, keyId);
          const { name, scopes } = old;
          yield* insertKeys(id, [{ ...replacement, name, scopes }]);
          const lines: Array<Line> = [{ chatbot: id, action: "add-key", detail: replacement.id }];
          if (old.expiresAt !== null && old.expiresAt <= end) {
            yield* note(actor, lines);
            return { name, scopes, expiresAt: old.expiresAt };
          }
          yield* updateKey(old, { name, scopes, expiresAt: end });
          lines.push({ chatbot: id, action: "change-key", detail: `${keyId}: expiresAt` });
          yield* note(actor, lines);
          return { name, scopes, expiresAt: end };
        }),
      ),

    revokeKey: (id, keyId, actor) =>
      write(
        Effect.gen(function* () {
          yield* keyWith(id, keyId);
          yield* query(revokeKey, [keyId]);
          yield* note(actor, [{ chatbot: id, action: "revoke-key", detail: keyId }]);
        }),
      ),

    audit: (limit) =>
      reads.query<AuditRecord>("operator", newestAudit, [limit]).pipe(
        Effect.map((rows) => rows.map((row) => ({ ...row }))),
        orUnavailable,
      ),
  });
};

const everyChatbot = `select ${chatbotColumns} from chatbot order by id`;
const everyKey = `select chatbot_id, ${keyColumns} from api_key order by created_at, id`;
const newestAudit = `
select time, actor, chatbot_id as chatbot, action, detail from audit order by id desc limit $1::int8`;

// Statements that read chatbots, look keys up or refer to a chatbot do not wait for it.
const lockRegistry = "lock table chatbot in share row exclusive mode";

const oneChatbot = `select ${chatbotColumns} from chatbot where id = $1`;
const inWorkspace = `select ${chatbotColumns} from chatbot where workspace_name = $1 order by id`;
const named = "select from chatbot where workspace_name = $1 and name = $2";
const oneKey = `
select ${keyColumns} from api_key where chatbot_id = $1 and id = $2 and revoked_at is null`;

const addChatbot = `
insert into chatbot (workspace_name, name, description, settings) values ($1, $2, $3, $4::jsonb)
returning id`;
const changeChatbot = `
update chatbot set workspace_name = $2, name = $3, description = $4, settings = settings || $5::jsonb
where id = $1`;
const moveChatbots = "update chatbot set workspace_name = $2 where workspace_name = $1";
const deleteChatbot = "delete from chatbot where id = $1";

const addKeys = `
insert into api_key (chatbot_id, id, hash, name, scopes, expires_at)
select $1, id, decode(hash, 'hex'), name, string_to_array(scopes, ','), expires_at
from unnest($2::text[], $3::text[], $4::text[], $5::text[], $6::timestamptz[])
  as key(id, hash, name, scopes, expires_at)
on conflict (id) do nothing
returning id`;
const changeKey = `
update api_key set name = $2, scopes = string_to_array($3, ','), expires_at = $4::timestamptz where id = $1`;
const revokeKey = "update api_key set revoked_at = clock_timestamp() where id = $1";

const noteChanges = `
with noted as (
  insert into audit (actor, chatbot_id, action, detail)
  select $1, chatbot, action, detail
  from unnest($2::int4[], $3::text[], $4::text[]) with ordinality as line(chatbot, action, detail, n) order by n
  returning chatbot_id
)
select pg_notify($5, 'changed:' || chatbot_id)::text from (select distinct chatbot_id from noted) changed`;
