/**
 * Stores chatbots and their keys, for operators and for requests that carry a key.
 */
import {
  type AuditRecord,
  boundsOf,
  changedFields,
  type Chatbot,
  ChatbotDirectory,
  ChatbotNotFound,
  ChatbotRegistry,
  ChatbotTaken,
  defaultSettings,
  grantOf,
  KeyNotFound,
  type KeyRecord,
  KeyTaken,
  type RegisteredChatbot,
  type RegisteredKey,
} from "@parley/core/ports";
import { Effect, Stream } from "effect";
import type { Database } from "./SqliteDatabase.ts";
import * as Rows from "./SqliteRows.ts";

type ChatbotRow = Omit<Chatbot, "settings"> & { readonly settings: string };

type KeyRow = Pick<KeyRecord, "hash" | "id" | "name"> & {
  readonly chatbot: number;
  readonly scopes: string;
  readonly expiresAt: number | null;
  /** The `KeyBounds`, as JSON. */
  readonly bounds: string;
  readonly createdAt: number;
  readonly revokedAt: number | null;
  readonly lastUsedAt: number | null;
};

const toChatbot = (row: ChatbotRow): Chatbot => ({
  ...row,
  settings: { ...defaultSettings, ...JSON.parse(row.settings) },
});

const toDate = (millis: number | null) => (millis === null ? null : new Date(millis));

const toKey = ({ hash, id, name, ...row }: KeyRow): RegisteredKey => ({
  id,
  hash,
  name,
  scopes: JSON.parse(row.scopes),
  expiresAt: toDate(row.expiresAt),
  ...boundsOf(JSON.parse(row.bounds)),
  createdAt: new Date(row.createdAt),
  revokedAt: toDate(row.revokedAt),
  lastUsedAt: toDate(row.lastUsedAt),
});

export const makeChatbotDirectory = ({
  get,
  read,
  run,
  write,
}: Database): ChatbotDirectory["Service"] => {
  const find: ChatbotDirectory["Service"]["find"] = (keyId) =>
    read((now) => {
      const row = get<KeyRow>("SELECT * FROM keys WHERE id = :keyId AND revokedAt IS NULL", {
        keyId,
      });
      if (row === undefined) return null;
      const chatbot = get<ChatbotRow>("SELECT * FROM chatbots WHERE id = :chatbot", {
        chatbot: row.chatbot,
      });
      return grantOf(toKey(row), toChatbot(chatbot!), now);
    });

  const recordUse: ChatbotDirectory["Service"]["recordUse"] = (keyIds) =>
    write((now) => {
      for (const id of keyIds) run("UPDATE keys SET lastUsedAt = :now WHERE id = :id", { id, now });
    });

  return ChatbotDirectory.of({ find, recordUse, changes: Stream.empty });
};

export const makeChatbotRegistry = (database: Database): ChatbotRegistry["Service"] => {
  const { all, emptyLog, get, read, rewriteFile, run, write } = database;

  const note = (entry: Omit<AuditRecord, "time">, time: number) =>
    Rows.insertAudit(database, entry, time);

  const find = (id: number) => {
    const row = get<ChatbotRow>("SELECT * FROM chatbots WHERE id = :id", { id });
    return row && toChatbot(row);
  };

  const isTaken = (workspaceName: string, name: string) =>
    get("SELECT 1 FROM chatbots WHERE workspaceName = :workspaceName AND name = :name", {
      workspaceName,
      name,
    }) !== undefined;

  const findKey = (chatbot: number, keyId: string) => {
    const row = get<KeyRow>(
      "SELECT * FROM keys WHERE chatbot = :chatbot AND id = :keyId AND revokedAt IS NULL",
      { chatbot, keyId },
    );
    return row && toKey(row);
  };

  const valuesOf = ({ expiresAt, id, name, scopes, ...key }: KeyRecord) => {
    return {
      id,
      name,
      scopes: JSON.stringify(scopes),
      expires: expiresAt?.getTime() ?? null,
      bounds: JSON.stringify(boundsOf(key)),
    };
  };

  /** Inserts a key, or returns the error if another key has its id. */
  const insertKey = (chatbot: Chatbot["id"], key: KeyRecord, actor: string, now: number) => {
    const { hash, id } = key;
    if (get("SELECT 1 FROM keys WHERE id = :id", { id })) return new KeyTaken({ keyId: id });
    run(
      `INSERT INTO keys (id, chatbot, hash, name, scopes, expiresAt, bounds, createdAt)
       VALUES (:id, :chatbot, :hash, :name, :scopes, :expires, :bounds, :now)`,
      { ...valuesOf(key), chatbot, hash, now },
    );
    note({ actor, chatbot, action: "add-key", detail: id }, now);
    return undefined;
  };

  const withKeys = (chatbot: Chatbot) => ({
    chatbot,
    keys: all<KeyRow>("SELECT * FROM keys WHERE chatbot = :id ORDER BY createdAt, rowid", {
      id: chatbot.id,
    }).map(toKey),
  });

  const list: ChatbotRegistry["Service"]["list"] = read(() =>
    all<ChatbotRow>("SELECT * FROM chatbots ORDER BY id").map((row) => withKeys(toChatbot(row))),
  );

  const getChatbot: ChatbotRegistry["Service"]["get"] = (id) =>
    read((): RegisteredChatbot | ChatbotNotFound => {
      const chatbot = find(id);
      return chatbot ? withKeys(chatbot) : new ChatbotNotFound({ chatbot: id });
    });

  const create: ChatbotRegistry["Service"]["create"] = ({ keys, ...fields }, actor) =>
    write((now): Chatbot | ChatbotTaken | KeyTaken => {
      const { description, name, settings, workspaceName } = fields;
      if (isTaken(workspaceName, name)) return new ChatbotTaken({ workspaceName, name });
      const row = get<Pick<Chatbot, "id">>(
        `INSERT INTO chatbots (workspaceName, name, description, settings)
         VALUES (:workspaceName, :name, :description, :settings) RETURNING id`,
        { workspaceName, name, description, settings: JSON.stringify(settings) },
      );
      const { id } = row!;
      note({ actor, chatbot: id, action: "create", detail: name }, now);
      for (const key of keys) {
        const error = insertKey(id, key, actor, now);
        if (error) return error;
      }
      return { id, ...fields };
    });

  const change: ChatbotRegistry["Service"]["change"] = (id, change, actor) =>
    write((now): Chatbot | ChatbotNotFound | ChatbotTaken => {
      const before = find(id);
      if (before === undefined) return new ChatbotNotFound({ chatbot: id });
      const settings = { ...before.settings, ...change.settings };
      const after = { ...before, ...change, settings };
      const { description, name, workspaceName } = after;
      const isMoved = name !== before.name || workspaceName !== before.workspaceName;
      if (isMoved && isTaken(workspaceName, name)) return new ChatbotTaken({ workspaceName, name });
      const fields = changedFields(before, change).join(", ");
      if (fields === "") return after;
      run(
        `UPDATE chatbots SET workspaceName = :workspaceName, name = :name,
           description = :description, settings = :settings
         WHERE id = :id`,
        { id, workspaceName, name, description, settings: JSON.stringify(settings) },
      );
      note({ actor, chatbot: id, action: "change", detail: fields }, now);
      return after;
    });

  // Foreign keys delete all rows that refer to the chatbot.
  const remove: ChatbotRegistry["Service"]["delete"] = (chatbot, actor) =>
    write((now): void | ChatbotNotFound => {
      const before = find(chatbot);
      if (before === undefined) return new ChatbotNotFound({ chatbot });
      run("DELETE FROM chatbots WHERE id = :chatbot", { chatbot });
      note({ actor, chatbot, action: "delete", detail: before.name }, now);
    }).pipe(Effect.tap(rewriteFile), Effect.tap(emptyLog));

  const addKey: ChatbotRegistry["Service"]["addKey"] = (chatbot, key, actor) =>
    write((now) => Rows.chatbotMissing(database, chatbot) ?? insertKey(chatbot, key, actor, now));

  const changeKey: ChatbotRegistry["Service"]["changeKey"] = (chatbot, keyId, change, actor) =>
    write((now): void | KeyNotFound => {
      const before = findKey(chatbot, keyId);
      if (before === undefined) return new KeyNotFound({ keyId });
      const fields = changedFields(before, change).join(", ");
      if (fields === "") return;
      run(
        `UPDATE keys SET name = :name, scopes = :scopes, expiresAt = :expires, bounds = :bounds
         WHERE id = :id`,
        valuesOf({ ...before, ...change }),
      );
      note({ actor, chatbot, action: "change-key", detail: `${keyId}: ${fields}` }, now);
    });

  const revokeKey: ChatbotRegistry["Service"]["revokeKey"] = (chatbot, keyId, actor) =>
    write((now): void | KeyNotFound => {
      if (findKey(chatbot, keyId) === undefined) return new KeyNotFound({ keyId });
      run("UPDATE keys SET revokedAt = :now WHERE id = :keyId", { keyId, now });
      note({ actor, chatbot, action: "revoke-key", detail: keyId }, now);
    });

  const recordRead: ChatbotRegistry["Service"]["recordRead"] = (chatbot, detail, actor) =>
    write((now) => note({ actor, chatbot, action: "read", detail }, now));

  const now: ChatbotRegistry["Service"]["now"] = read((now) => new Date(now));

  const audit: ChatbotRegistry["Service"]["audit"] = (limit) =>
    read(() =>
      all<Omit<AuditRecord, "time"> & { readonly time: number }>(
        "SELECT time, actor, chatbot, action, detail FROM audit ORDER BY id DESC LIMIT :limit",
        { limit },
      ).map((entry) => ({ ...entry, time: new Date(entry.time) })),
    );

  return ChatbotRegistry.of({
    list,
    get: getChatbot,
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
