/**
 * The port `ChatbotRegistry`. A change is one transaction with its lines of the audit and the notifications of other processes.
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
import type { SqlError } from "effect/sql";
import { isLockTimeout, retryOnConflict, toStorageUnavailable } from "../database/PgErrors.ts";
import { array, texts, time } from "../database/PgParams.ts";
import type { PgPools } from "../database/PgPools.ts";
import {
  chatbotColumns,
  keyColumns,
  toChatbot,
  toKey,
  type ChatbotRow,
  type KeyRow,
} from "../rows/ChatbotRows.ts";

/** A new line of the audit. */
type Line = Pick<AuditRecord, "chatbot" | "action" | "detail">;

export const makeChatbotRegistry = ({ reads, writes }: PgPools) => {
  const query = <Row extends object>(text: string, values: ReadonlyArray<unknown> = []) =>
    writes.query<Row>("operator", text, values);

  /** Runs changes one after the other, so that each sees the one before. */
  const write = <A, E>(work: Effect.Effect<A, E | SqlError.SqlError>) =>
    writes.transaction("operator", Effect.andThen(query(lockRegistry), work)).pipe(
      retryOnConflict,
      // In all longer than the transaction of a frozen process lasts.
      Effect.retry({ while: isLockTimeout, times: 3 }),
      toStorageUnavailable,
    );

  const chatbotWith = (id: number) =>
    Effect.flatMap(query<ChatbotRow>(oneChatbot, [id]), ([row]) =>
      row === undefined
        ? Effect.fail(new ChatbotNotFound({ chatbot: id }))
        : Effect.succeed(toChatbot(row)),
    );

  /** A key that is not revoked. */
  const keyWith = (chatbot: number, keyId: string) =>
    Effect.flatMap(query<KeyRow>(oneKey, [chatbot, keyId]), ([row]) =>
      row === undefined ? Effect.fail(new KeyNotFound({ keyId })) : Effect.succeed(toKey(row)),
    );

  const mustBeFree = (workspaceName: string, name: string) =>
    Effect.flatMap(query(named, [workspaceName, name]), (rows) =>
      rows.length > 0 ? Effect.fail(new ChatbotTaken({ workspaceName, name })) : Effect.void,
    );

  const insertKeys = Effect.fnUntraced(function* (chatbot: number, keys: ReadonlyArray<KeyRecord>) {
    for (const { expiresAt, hash, id, name, scopes } of keys) {
      const values = [chatbot, id, hash, name, texts(scopes), time(expiresAt)];
      const inserted = yield* query(insertKey, values);
      if (inserted.length === 0) return yield* new KeyTaken({ keyId: id });
    }
  });

  const updateKey = (
    { id }: RegisteredKey,
    { expiresAt, name, scopes }: Pick<KeyRecord, "expiresAt" | "name" | "scopes">,
  ) => query(changeKey, [id, name, texts(scopes), time(expiresAt)]);

  /** Writes the lines of the audit. When the transaction commits, notifies other processes once for each chatbot. */
  const audit = (actor: string, lines: ReadonlyArray<Line>) =>
    query(insertAudit, [
      actor,
      array(lines, "int4", ({ chatbot }) => chatbot),
      array(lines, "text", ({ action }) => action),
      array(lines, "text", ({ detail }) => detail),
    ]);

  return ChatbotRegistry.of({
    list: Effect.all([
      reads.query<ChatbotRow>("operator", everyChatbot),
      reads.query<KeyRow & { readonly chatbot_id: number }>("operator", everyKey),
    ]).pipe(
      Effect.map(([chatbots, keys]) => {
        const listed = chatbots.map((row) => ({
          chatbot: toChatbot(row),
          keys: [] as Array<RegisteredKey>,
        }));
        const keysOf = new Map(listed.map(({ chatbot, keys }) => [chatbot.id, keys]));
        // A chatbot that was created between the two statements is not in the list.
        for (const row of keys) keysOf.get(row.chatbot_id)?.push(toKey(row));
        return listed;
      }),
      toStorageUnavailable,
    ),

    create: ({ description, keys, name, settings, workspaceName }, actor) =>
      write(
        Effect.gen(function* () {
          yield* mustBeFree(workspaceName, name);
          const values = [workspaceName, name, description, PgTypes.jsonb(settings)];
          const [made] = yield* query<{ readonly id: number }>(addChatbot, values);
          const { id } = made!;
          yield* insertKeys(id, keys);
          yield* audit(actor, [
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
          // Only the changed settings: another version may have more of them.
          const changed = PgTypes.jsonb(change.settings ?? {});
          yield* query(changeChatbot, [id, workspaceName, name, description, changed]);
          yield* audit(actor, [{ chatbot: id, action: "change", detail: fields.join(", ") }]);
          return after;
        }),
      ),

    renameWorkspace: (from, to, { merge }, actor) =>
      write(
        Effect.gen(function* () {
          const moving = (yield* query<ChatbotRow>(inWorkspace, [from])).map(toChatbot);
          if (moving.length === 0) return yield* new WorkspaceNotFound({ workspaceName: from });
          if (from === to) return;
          const there = (yield* query<ChatbotRow>(inWorkspace, [to])).map(toChatbot);
          if (there.length > 0 && !merge) return yield* new WorkspaceTaken({ workspaceName: to });
          const taken = moving.find(({ name }) => there.some((one) => one.name === name));
          if (taken !== undefined) {
            return yield* new ChatbotTaken({ workspaceName: to, name: taken.name });
          }
          yield* query(moveChatbots, [from, to]);
          const detail = "workspaceName";
          yield* audit(
            actor,
            moving.map(({ id }): Line => ({ chatbot: id, action: "change", detail })),
          );
        }),
      ),

    delete: (id, actor) =>
      write(
        Effect.gen(function* () {
          const { name } = yield* chatbotWith(id);
          // Foreign keys and a trigger delete its other rows.
          yield* query(deleteChatbot, [id]);
          yield* audit(actor, [{ chatbot: id, action: "delete", detail: name }]);
        }),
      ),

    addKey: (id, key, actor) =>
      write(
        Effect.gen(function* () {
          yield* chatbotWith(id);
          yield* insertKeys(id, [key]);
          yield* audit(actor, [{ chatbot: id, action: "add-key", detail: key.id }]);
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
          yield* audit(actor, [{ chatbot: id, action: "change-key", detail }]);
        }),
      ),

    replaceKey: (id, keyId, replacement, end, actor) =>
      write(
        Effect.gen(function* () {
          const old = yield* keyWith(id, keyId);
          const { name, scopes } = old;
          yield* insertKeys(id, [{ ...replacement, name, scopes }]);
          const lines: Array<Line> = [{ chatbot: id, action: "add-key", detail: replacement.id }];
          const isShortened = old.expiresAt === null || old.expiresAt > end;
          if (isShortened) {
            yield* updateKey(old, { name, scopes, expiresAt: end });
            lines.push({ chatbot: id, action: "change-key", detail: `${keyId}: expiresAt` });
          }
          yield* audit(actor, lines);
          return { name, scopes, expiresAt: isShortened ? end : old.expiresAt };
        }),
      ),

    revokeKey: (id, keyId, actor) =>
      write(
        Effect.gen(function* () {
          yield* keyWith(id, keyId);
          yield* query(revokeKey, [keyId]);
          yield* audit(actor, [{ chatbot: id, action: "revoke-key", detail: keyId }]);
        }),
      ),

    audit: (limit) =>
      reads.query<AuditRecord>("operator", newestAudit, [limit]).pipe(
        Effect.map((rows) => rows.map((row) => ({ ...row }))),
        toStorageUnavailable,
      ),
  });
};

const everyChatbot = `select ${chatbotColumns} from chatbot order by id`;
const everyKey = `select chatbot_id, ${keyColumns} from api_key order by created_at, id`;
const newestAudit = `
select time, actor, chatbot_id as chatbot, action, detail from audit order by id desc limit $1::int8`;

// Statements that read chatbots, find keys or refer to a chatbot do not wait for this lock.
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

const insertKey = `
insert into api_key (chatbot_id, id, hash, name, scopes, expires_at)
values ($1, $2, $3, $4, $5, $6::timestamptz) on conflict (id) do nothing returning id`;
const changeKey = `
update api_key set name = $2, scopes = $3, expires_at = $4::timestamptz where id = $1`;
const revokeKey = "update api_key set revoked_at = clock_timestamp() where id = $1";

const insertAudit = `
with written as (
  insert into audit (actor, chatbot_id, action, detail)
  select $1, chatbot, action, detail
  from unnest($2::int4[], $3::text[], $4::text[]) with ordinality as line(chatbot, action, detail, n) order by n
  returning chatbot_id
)
select pg_notify(current_schema(), 'changed:' || chatbot_id)::text from (select distinct chatbot_id from written) changed`;
