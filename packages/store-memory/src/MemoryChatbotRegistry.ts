/**
 * The registry and the directory of chatbots: two ports over the same chatbots and keys.
 */
import {
  ChatbotId,
  changedFields,
  ChatbotDirectory,
  ChatbotRegistry,
  ChatbotTaken,
  grantOf,
  KeyNotFound,
  KeyTaken,
  type RegisteredKey,
} from "@parley/core/ports";
import { Clock, Context, Effect, Result, Stream } from "effect";
import { atomically, emptyTenant, findChatbot, record, type Memory } from "./Memory.ts";

type Registry = ChatbotRegistry["Service"];
type Directory = ChatbotDirectory["Service"];

/** A new key has been neither used nor revoked. */
const newKey = { revokedAt: null, lastUsedAt: null };

export const makeChatbotRegistry = (memory: Memory) => {
  const { chatbots, lastId, notifications } = memory;
  const all = () => [...chatbots.values()];
  const findByName = (workspaceName: string, name: string) =>
    all().find(({ chatbot }) => chatbot.workspaceName === workspaceName && chatbot.name === name);
  const isTaken = (keyId: string) => all().some(({ keys }) => keys.has(keyId));

  /** Finds a key, along with all keys of its chatbot; fails if the key does not exist or has been revoked. */
  const findKey = (chatbot: number, keyId: string) => {
    const keys = chatbots.get(chatbot)?.keys;
    const key = keys?.get(keyId);
    return keys === undefined || key === undefined || key.revokedAt !== null
      ? Result.fail(new KeyNotFound({ keyId }))
      : Result.succeed({ key, keys });
  };

  const list: Registry["list"] = Effect.sync(() =>
    all().map(({ chatbot, keys }) => ({ chatbot, keys: [...keys.values()] })),
  );

  const get: Registry["get"] = (id) =>
    atomically(function* () {
      const { chatbot, keys } = yield* findChatbot(memory, id);
      return { chatbot, keys: [...keys.values()] };
    });

  const create: Registry["create"] = (
    { description, keys, name, settings, workspaceName },
    actor,
  ) =>
    atomically(function* (now) {
      if (findByName(workspaceName, name) !== undefined) {
        return yield* Result.fail(new ChatbotTaken({ workspaceName, name }));
      }
      const newKeys = new Map<string, RegisteredKey>();
      for (const key of keys) {
        if (isTaken(key.id) || newKeys.has(key.id)) {
          return yield* Result.fail(new KeyTaken({ keyId: key.id }));
        }
        newKeys.set(key.id, { ...key, ...newKey, createdAt: new Date(now) });
      }
      const id = ChatbotId.make(++lastId.chatbot);
      const chatbot = { id, workspaceName, name, description, settings };
      chatbots.set(chatbot.id, { chatbot, keys: newKeys, ...emptyTenant() });
      record(memory, now, actor, chatbot.id, "create", name);
      for (const { id } of keys) record(memory, now, actor, chatbot.id, "add-key", id);
      return chatbot;
    });

  const change: Registry["change"] = (id, change, actor) =>
    atomically(function* (now) {
      const row = yield* findChatbot(memory, id);
      const before = row.chatbot;
      const settings = { ...before.settings, ...change.settings };
      const chatbot = { ...before, ...change, settings };
      const { name, workspaceName } = chatbot;
      if ((findByName(workspaceName, name) ?? row) !== row) {
        return yield* Result.fail(new ChatbotTaken({ workspaceName, name }));
      }
      const fields = changedFields(before, change);
      if (fields.length === 0) return before;
      row.chatbot = chatbot;
      record(memory, now, actor, id, "change", fields.join(", "));
      return chatbot;
    });

  const remove: Registry["delete"] = (id, actor) =>
    atomically(function* (now) {
      const { name } = (yield* findChatbot(memory, id)).chatbot;
      chatbots.delete(id);
      record(memory, now, actor, id, "delete", name);
    });

  const addKey: Registry["addKey"] = (id, key, actor) =>
    atomically(function* (now) {
      const { keys } = yield* findChatbot(memory, id);
      if (isTaken(key.id)) return yield* Result.fail(new KeyTaken({ keyId: key.id }));
      keys.set(key.id, { ...key, ...newKey, createdAt: new Date(now) });
      record(memory, now, actor, id, "add-key", key.id);
    });

  const changeKey: Registry["changeKey"] = (id, keyId, change, actor) =>
    atomically(function* (now) {
      const { key, keys } = yield* findKey(id, keyId);
      const fields = changedFields(key, change);
      if (fields.length === 0) return;
      keys.set(keyId, { ...key, ...change });
      record(memory, now, actor, id, "change-key", `${keyId}: ${fields.join(", ")}`);
    });

  const revokeKey: Registry["revokeKey"] = (id, keyId, actor) =>
    atomically(function* (now) {
      const { key, keys } = yield* findKey(id, keyId);
      keys.set(keyId, { ...key, revokedAt: new Date(now) });
      record(memory, now, actor, id, "revoke-key", keyId);
    });

  const recordRead: Registry["recordRead"] = (id, detail, actor) =>
    Effect.map(Clock.currentTimeMillis, (now) => record(memory, now, actor, id, "read", detail));

  const now: Registry["now"] = Effect.map(Clock.currentTimeMillis, (now) => new Date(now));

  const audit: Registry["audit"] = (limit) =>
    Effect.sync(() => memory.audit.toReversed().slice(0, limit));

  const find: Directory["find"] = (keyId) =>
    Effect.map(Clock.currentTimeMillis, (now) => {
      for (const { chatbot, keys } of all()) {
        const key = keys.get(keyId);
        if (key === undefined || key.revokedAt !== null) continue;
        return grantOf(key, chatbot, now);
      }
      return null;
    });

  const recordUse: Directory["recordUse"] = (keyIds) =>
    Effect.map(Clock.currentTimeMillis, (now) => {
      for (const { keys } of all()) {
        for (const id of keyIds) {
          const key = keys.get(id);
          if (key !== undefined) keys.set(id, { ...key, lastUsedAt: new Date(now) });
        }
      }
    });

  const changes: Directory["changes"] = Stream.fromPubSub(notifications.changes);

  const directory = ChatbotDirectory.of({ find, recordUse, changes });
  const registry = ChatbotRegistry.of({
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
  return Context.make(ChatbotRegistry, registry).pipe(Context.add(ChatbotDirectory, directory));
};
