/**
 * Implements the port `ChatbotRegistry`. A single transaction makes a change, adds its entries to the audit log and
 * notifies other processes.
 */
import { PgTypes } from "@effect/sql-pg";
import {
  boundsOf,
  changedFields,
  ChatbotNotFound,
  ChatbotRegistry,
  ChatbotTaken,
  KeyNotFound,
  KeyTaken,
  type AuditRecord,
  type Chatbot,
  type KeyRecord,
  type RegisteredChatbot,
  type RegisteredKey,
} from "@parley/core/ports";
import { Effect } from "effect";
import {
  isLockTimeout,
  isUniqueViolation,
  isUnsettled,
  toStorageUnavailable,
} from "../database/PgErrors.ts";
import { texts, time } from "../database/PgParams.ts";
import type { PgPools } from "../database/PgPools.ts";
import {
  chatbotColumns,
  keyColumns,
  toChatbot,
  toKey,
  type ChatbotRow,
  type KeyRow,
} from "../rows/ChatbotRows.ts";

type Port = ChatbotRegistry["Service"];

export const makeChatbotRegistry = ({ reads, writes }: PgPools) => {
  const query = <Row extends object>(text: string, values: ReadonlyArray<unknown> = []) =>
    writes.query<Row>("operator", text, values);

  /** Adds an entry to the audit log, and notifies other processes of the change. */
  const record = (actor: string, chatbot: number, action: AuditRecord["action"], detail: string) =>
    query(addEntry, [actor, chatbot, action, detail]);

  /** Runs changes one after another, so that each sees the previous one. */
  const write = <Step extends Effect.Effect<any, any>, A>(
    change: () => Generator<Step, A, never>,
  ) =>
    writes.transaction("operator", Effect.andThen(query(lockRegistry), Effect.gen(change))).pipe(
      // Together, the attempts outlast the transaction of a frozen process.
      Effect.retry({ while: isLockTimeout, times: 3 }),
      toStorageUnavailable,
    );

  const chatbotWith = (id: number) =>
    Effect.flatMap(query<ChatbotRow>(oneChatbot, [id]), ([row]) =>
      row === undefined
        ? Effect.fail(new ChatbotNotFound({ chatbot: id }))
        : Effect.succeed(toChatbot(row)),
    );

  const keyWith = (chatbot: number, keyId: string) =>
    Effect.flatMap(query<KeyRow>(oneKey, [chatbot, keyId]), ([row]) =>
      row === undefined ? Effect.fail(new KeyNotFound({ keyId })) : Effect.succeed(toKey(row)),
    );

  /** Inserts or updates a row, or fails with the error if another row has its name or id. */
  const writeUnique = <E>(text: string, values: ReadonlyArray<unknown>, error: E) =>
    Effect.catchIf(
      query<Pick<Chatbot, "id">>(text, values),
      (failure) => isUniqueViolation(failure) && !isUnsettled(failure),
      () => Effect.fail(error),
    );

  const insertKey = (chatbot: number, key: KeyRecord, actor: string) => {
    const values = [...valuesOf(key), chatbot, key.hash, actor];
    return writeUnique(insertApiKey, values, new KeyTaken({ keyId: key.id }));
  };

  /** Reads one chatbot or, with `null`, every chatbot. */
  const readChatbots = (id: number | null) =>
    reads
      .query<ChatbotRow & (KeyRow | { readonly id: null })>("operator", selectChatbots, [id])
      .pipe(
        Effect.map((rows): ReadonlyArray<RegisteredChatbot> => {
          const chatbots = new Map<number, { chatbot: Chatbot; keys: Array<RegisteredKey> }>();
          for (const row of rows) {
            const item = chatbots.get(row.chatbot_id) ?? { chatbot: toChatbot(row), keys: [] };
            if (row.id !== null) item.keys.push(toKey(row));
            chatbots.set(row.chatbot_id, item);
          }
          return [...chatbots.values()];
        }),
        toStorageUnavailable,
      );

  const list: Port["list"] = readChatbots(null);

  const get: Port["get"] = (id) =>
    Effect.flatMap(readChatbots(id), ([chatbot]) =>
      chatbot ? Effect.succeed(chatbot) : Effect.fail(new ChatbotNotFound({ chatbot: id })),
    );

  const create: Port["create"] = ({ keys, ...chatbot }, actor) =>
    write(function* () {
      const { description, name, settings, workspaceName } = chatbot;
      const values = [workspaceName, name, description, PgTypes.jsonb(settings)];
      const nameConflict = new ChatbotTaken({ workspaceName, name });
      const [row] = yield* writeUnique(addChatbot, values, nameConflict);
      const { id } = row!;
      yield* record(actor, id, "create", name);
      for (const key of keys) yield* insertKey(id, key, actor);
      return { id, ...chatbot };
    });

  const change: Port["change"] = (id, change, actor) =>
    write(function* () {
      const before = yield* chatbotWith(id);
      const settings = { ...before.settings, ...change.settings };
      const after = { ...before, ...change, settings };
      const { description, name, workspaceName } = after;
      const fields = changedFields(before, change);
      if (fields.length === 0) return before;
      // Writes only the changed settings, because another version of Parley may have stored further settings.
      const settingsJson = PgTypes.jsonb(change.settings ?? {});
      const values = [id, workspaceName, name, description, settingsJson];
      const nameConflict = new ChatbotTaken({ workspaceName, name });
      yield* writeUnique(changeChatbot, values, nameConflict);
      yield* record(actor, id, "change", fields.join(", "));
      return after;
    });

  const remove: Port["delete"] = (id, actor) =>
    write(function* () {
      const { name } = yield* chatbotWith(id);
      // Foreign keys and a trigger delete the chatbot's other rows, except those in the audit log.
      yield* query(deleteChatbot, [id]);
      yield* record(actor, id, "delete", name);
    });

  const addKey: Port["addKey"] = (id, key, actor) =>
    write(function* () {
      yield* chatbotWith(id);
      yield* insertKey(id, key, actor);
    });

  const changeKey: Port["changeKey"] = (id, keyId, change, actor) =>
    write(function* () {
      const before = yield* keyWith(id, keyId);
      const fields = changedFields(before, change);
      if (fields.length === 0) return;
      yield* query(updateApiKey, valuesOf({ ...before, ...change }));
      yield* record(actor, id, "change-key", `${keyId}: ${fields.join(", ")}`);
    });

  const revokeKey: Port["revokeKey"] = (id, keyId, actor) =>
    write(function* () {
      yield* keyWith(id, keyId);
      yield* query(revokeApiKey, [keyId]);
      yield* record(actor, id, "revoke-key", keyId);
    });

  const recordRead: Port["recordRead"] = (id, detail, actor) =>
    Effect.asVoid(record(actor, id, "read", detail)).pipe(toStorageUnavailable);

  const now: Port["now"] = Effect.map(
    toStorageUnavailable(reads.query<{ readonly now: Date }>("operator", currentTime)),
    ([row]) => row!.now,
  );

  const audit: Port["audit"] = (limit) =>
    toStorageUnavailable(reads.query<AuditRecord>("operator", newestAudit, [limit]));

  return ChatbotRegistry.of({
    list,
    get,
    create,
    change,
    delete: remove,
    addKey,
    changeKey,
    revokeKey,
    recordRead,
    now,
    audit,
  });
};

const selectChatbots = `
select ${chatbotColumns}, ${keyColumns} from chatbot left join api_key on chatbot_id = chatbot.id
where $1::int is null or chatbot.id = $1 order by chatbot.id, created_at, api_key.id`;
const newestAudit = `
select time, actor, chatbot_id as chatbot, action, detail from audit order by id desc limit $1::int8`;

// Statements that read chatbots, find keys or refer to a chatbot do not wait for this lock.
const lockRegistry = "lock table chatbot in share row exclusive mode";

const oneChatbot = `select ${chatbotColumns} from chatbot where id = $1`;
const oneKey = `
select ${keyColumns} from api_key where chatbot_id = $1 and id = $2 and revoked_at is null`;

const addChatbot = `
insert into chatbot (workspace_name, name, description, settings) values ($1, $2, $3, $4::jsonb)
returning id`;
const changeChatbot = `
update chatbot set workspace_name = $2, name = $3, description = $4, settings = settings || $5::jsonb
where id = $1`;
const deleteChatbot = "delete from chatbot where id = $1";

const valuesOf = (key: KeyRecord) => [
  key.id,
  key.name,
  texts(key.scopes),
  time(key.expiresAt),
  PgTypes.jsonb(boundsOf(key)),
];

// Bounds that another version of Parley has stored stay as they are.
const updateApiKey = `
update api_key set name = $2, scopes = $3, expires_at = $4, bounds = bounds || $5 where id = $1`;
const currentTime = "select clock_timestamp()::timestamptz(3) as now";
const revokeApiKey = "update api_key set revoked_at = clock_timestamp() where id = $1";

// PostgreSQL sends identical notifications from one transaction only once.
const auditInsert = (values: string) => `
written as (
  insert into audit (actor, chatbot_id, action, detail) values (${values}) returning chatbot_id
)
select pg_notify(current_schema(), 'changed:' || chatbot_id)::text from written`;

const addEntry = `with ${auditInsert("$1, $2, $3, $4")}`;

// Adds a key and its entry in the audit log in one statement, because a new chatbot may have a thousand keys.
const insertApiKey = `
with added as (
  insert into api_key (id, name, scopes, expires_at, bounds, chatbot_id, hash)
  values ($1, $2, $3, $4, $5, $6, $7)
), ${auditInsert("$8, $6, 'add-key', $1")}`;
