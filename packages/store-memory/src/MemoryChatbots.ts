/**
 * Chatbots, their keys and the audit, for operators and for whoever opens a key.
 */
import {
  changedFields,
  ChatbotDirectory,
  ChatbotNotFound,
  ChatbotRegistry,
  ChatbotTaken,
  KeyNotFound,
  KeyTaken,
  WorkspaceNotFound,
  WorkspaceTaken,
  type AuditRecord,
  type Chatbot,
  type Replaced,
} from "@parley/core";
import { Context, Effect, PubSub, Stream } from "effect";
import { atPresent, type Memory } from "./Memory.ts";
import { emptyTenant } from "./Tenant.ts";

/** The directory and the registry, which are two sides of one table. */
export const makeChatbots = ({ audit, hints: { changed }, next, registered }: Memory) => {
  const note = (line: AuditRecord) => {
    audit.push(line);
    return PubSub.publish(changed, line.chatbot);
  };
  const all = () => [...registered.values()];
  const named = (workspaceName: string, name: string) =>
    all().find((one) => one.chatbot.workspaceName === workspaceName && one.chatbot.name === name);
  const isTaken = (keyId: string) => all().some(({ keys }) => keys.has(keyId));
  const liveKey = (chatbot: number, keyId: string) => {
    const keys = registered.get(chatbot)?.keys;
    const key = keys?.get(keyId);
    return keys === undefined || key === undefined || key.revokedAt !== null
      ? undefined
      : { key, keys };
  };
  const fresh = { revokedAt: null, lastUsedAt: null };

  const registry = ChatbotRegistry.of({
    list: Effect.sync(() =>
      all().map(({ chatbot, keys }) => ({ chatbot, keys: [...keys.values()] })),
    ),

    create: ({ keys, name, workspaceName, ...rest }, actor) =>
      atPresent<Chatbot, ChatbotTaken | KeyTaken>((now) => {
        if (named(workspaceName, name) !== undefined) {
          return Effect.fail(new ChatbotTaken({ workspaceName, name }));
        }
        const taken = keys.find(
          ({ id }, at) => isTaken(id) || keys.findIndex((key) => key.id === id) < at,
        );
        if (taken !== undefined) return Effect.fail(new KeyTaken({ keyId: taken.id }));
        const time = new Date(now);
        const chatbot = { id: next("chatbot"), name, workspaceName, ...rest };
        const made = keys.map((key) => [key.id, { ...key, ...fresh, createdAt: time }] as const);
        registered.set(chatbot.id, { chatbot, keys: new Map(made), tenant: emptyTenant() });
        const line = { time, actor, chatbot: chatbot.id };
        const noted = note({ ...line, action: "create", detail: name });
        for (const { id } of keys) audit.push({ ...line, action: "add-key", detail: id });
        return Effect.as(noted, chatbot);
      }),

    change: (id, change, actor) =>
      atPresent<Chatbot, ChatbotNotFound | ChatbotTaken>((now) => {
        const found = registered.get(id);
        if (found === undefined) return Effect.fail(new ChatbotNotFound({ chatbot: id }));
        const before = found.chatbot;
        const settings = { ...before.settings, ...change.settings };
        const chatbot = { ...before, ...change, settings };
        const { name, workspaceName } = chatbot;
        const other = named(workspaceName, name);
        if (other !== undefined && other !== found) {
          return Effect.fail(new ChatbotTaken({ workspaceName, name }));
        }
        const fields = changedFields(before, change);
        if (fields.length === 0) return Effect.succeed(before);
        found.chatbot = chatbot;
        const detail = fields.join(", ");
        return Effect.as(
          note({ time: new Date(now), actor, chatbot: id, action: "change", detail }),
          chatbot,
        );
      }),

    renameWorkspace: (from, to, { merge }, actor) =>
      atPresent<void, WorkspaceNotFound | WorkspaceTaken | ChatbotTaken>((now) => {
        const moved = all().filter(({ chatbot }) => chatbot.workspaceName === from);
        if (moved.length === 0) return Effect.fail(new WorkspaceNotFound({ workspaceName: from }));
        if (from === to) return Effect.void;
        if (!merge && all().some(({ chatbot }) => chatbot.workspaceName === to)) {
          return Effect.fail(new WorkspaceTaken({ workspaceName: to }));
        }
        const taken = moved.find(({ chatbot }) => named(to, chatbot.name) !== undefined)?.chatbot;
        if (taken !== undefined) {
          return Effect.fail(new ChatbotTaken({ workspaceName: to, name: taken.name }));
        }
        const line = {
          time: new Date(now),
          actor,
          action: "change",
          detail: "workspaceName",
        } as const;
        // All are noted before the first is told of.
        const noted = moved.map((one) => {
          one.chatbot = { ...one.chatbot, workspaceName: to };
          return note({ ...line, chatbot: one.chatbot.id });
        });
        return Effect.all(noted, { discard: true });
      }),

    delete: (id, actor) =>
      atPresent<void, ChatbotNotFound>((now) => {
        const found = registered.get(id);
        if (found === undefined) return Effect.fail(new ChatbotNotFound({ chatbot: id }));
        registered.delete(id);
        const { name } = found.chatbot;
        return Effect.asVoid(
          note({ time: new Date(now), actor, chatbot: id, action: "delete", detail: name }),
        );
      }),

    addKey: (id, key, actor) =>
      atPresent<void, ChatbotNotFound | KeyTaken>((now) => {
        const found = registered.get(id);
        if (found === undefined) return Effect.fail(new ChatbotNotFound({ chatbot: id }));
        if (isTaken(key.id)) return Effect.fail(new KeyTaken({ keyId: key.id }));
        const time = new Date(now);
        found.keys.set(key.id, { ...key, ...fresh, createdAt: time });
        return Effect.asVoid(note({ time, actor, chatbot: id, action: "add-key", detail: key.id }));
      }),

    changeKey: (id, keyId, change, actor) =>
      atPresent<void, KeyNotFound>((now) => {
        const found = liveKey(id, keyId);
        if (found === undefined) return Effect.fail(new KeyNotFound({ keyId }));
        const fields = changedFields(found.key, change);
        if (fields.length === 0) return Effect.void;
        found.keys.set(keyId, { ...found.key, ...change });
        const detail = `${keyId}: ${fields.join(", ")}`;
        return Effect.asVoid(
          note({ time: new Date(now), actor, chatbot: id, action: "change-key", detail }),
        );
      }),

    replaceKey: (id, keyId, replacement, end, actor) =>
      atPresent<Replaced, KeyNotFound | KeyTaken>((now) => {
        const found = liveKey(id, keyId);
        if (found === undefined) return Effect.fail(new KeyNotFound({ keyId }));
        if (isTaken(replacement.id)) return Effect.fail(new KeyTaken({ keyId: replacement.id }));
        const time = new Date(now);
        const { key, keys } = found;
        const { name, scopes } = key;
        const isEarlier = key.expiresAt !== null && key.expiresAt <= end;
        const expiresAt = isEarlier ? key.expiresAt : end;
        keys.set(replacement.id, { ...replacement, name, scopes, ...fresh, createdAt: time });
        keys.set(keyId, { ...key, expiresAt });
        const line = { time, actor, chatbot: id };
        const noted = note({ ...line, action: "add-key", detail: replacement.id });
        if (!isEarlier)
          audit.push({ ...line, action: "change-key", detail: `${keyId}: expiresAt` });
        return Effect.as(noted, { name, scopes, expiresAt });
      }),

    revokeKey: (id, keyId, actor) =>
      atPresent<void, KeyNotFound>((now) => {
        const found = liveKey(id, keyId);
        if (found === undefined) return Effect.fail(new KeyNotFound({ keyId }));
        const time = new Date(now);
        found.keys.set(keyId, { ...found.key, revokedAt: time });
        return Effect.asVoid(
          note({ time, actor, chatbot: id, action: "revoke-key", detail: keyId }),
        );
      }),

    audit: (limit) => Effect.sync(() => audit.toReversed().slice(0, limit)),
  });

  const directory = ChatbotDirectory.of({
    open: (keyId) =>
      Effect.sync(() => {
        for (const { chatbot, keys } of all()) {
          const key = keys.get(keyId);
          if (key === undefined || key.revokedAt !== null) continue;
          return { hash: key.hash, scopes: key.scopes, expiresAt: key.expiresAt, chatbot };
        }
        return null;
      }),
    used: (keyIds) =>
      atPresent((now) =>
        Effect.sync(() => {
          for (const { keys } of all()) {
            for (const id of keyIds) {
              const key = keys.get(id);
              if (key !== undefined) keys.set(id, { ...key, lastUsedAt: new Date(now) });
            }
          }
        }),
      ),
    changed: Stream.fromPubSub(changed),
  });

  return Context.make(ChatbotRegistry, registry).pipe(Context.add(ChatbotDirectory, directory));
};
