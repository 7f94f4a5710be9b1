import {
  ChatbotDirectory,
  ChatbotRegistry,
  KeyTaken,
  type AuditRecord,
  type Chatbot,
  type KeyRecord,
} from "@parley/core";
import { Context, Effect, PubSub, Stream } from "effect";
import { atPresent } from "./Memory.ts";

interface Registered {
  chatbot: Chatbot;
  readonly keys: Map<string, KeyRecord & { readonly revokedAt: Date | null }>;
}

/** The directory and the registry, which are two sides of one table. */
export const makeChatbots = Effect.gen(function* () {
  const registered: Array<Registered> = [];
  const audit: Array<AuditRecord> = [];
  const changed = yield* PubSub.sliding<number | null>(1024);

  const equal = (a: unknown, b: unknown) => JSON.stringify(a) === JSON.stringify(b);

  const registry = ChatbotRegistry.of({
    list: Effect.sync(() =>
      registered.map(({ chatbot, keys }) => ({ chatbot, keys: [...keys.values()] })),
    ),

    save: ({ description, keys, name, settings, workspaceName }, actor) =>
      atPresent<Chatbot, KeyTaken>((now) => {
        const found = registered.find(
          ({ chatbot }) => chatbot.workspaceName === workspaceName && chatbot.name === name,
        );
        const others = registered.filter((one) => one !== found);
        const taken = keys.find((key) => others.some((other) => other.keys.has(key.id)));
        if (taken !== undefined) return Effect.fail(new KeyTaken({ keyId: taken.id }));
        const id = found?.chatbot.id ?? registered.length + 1;
        const chatbot: Chatbot = { id, name, description, workspaceName, settings };
        const entry = found ?? { chatbot, keys: new Map() };
        const before = JSON.stringify([found?.chatbot, [...entry.keys]]);
        entry.chatbot = chatbot;
        for (const key of keys) {
          const known = entry.keys.get(key.id);
          // A revoked key stays revoked: a declaration that still names it must not revive it.
          if (known?.revokedAt == null && !equal(known, { ...key, revokedAt: null })) {
            entry.keys.set(key.id, { ...key, revokedAt: null });
          }
        }
        if (found === undefined) registered.push(entry);
        if (before === JSON.stringify([chatbot, [...entry.keys]])) return Effect.succeed(chatbot);
        const action = found === undefined ? "create" : "change";
        audit.push({ time: new Date(now), actor, chatbot: id, action, detail: name });
        return Effect.as(PubSub.publish(changed, id), chatbot);
      }),

    revoke: (id, keyId, actor) =>
      atPresent((now) => {
        const keys = registered.find(({ chatbot }) => chatbot.id === id)?.keys;
        const key = keys?.get(keyId);
        if (keys === undefined || key === undefined || key.revokedAt !== null) {
          return Effect.succeed(false);
        }
        keys.set(keyId, { ...key, revokedAt: new Date(now) });
        audit.push({ time: new Date(now), actor, chatbot: id, action: "revoke", detail: keyId });
        return Effect.as(PubSub.publish(changed, id), true);
      }),

    audit: (limit) => Effect.sync(() => audit.slice(-limit).reverse()),
  });

  const directory = ChatbotDirectory.of({
    open: (keyId) =>
      Effect.sync(() => {
        for (const { chatbot, keys } of registered) {
          const key = keys.get(keyId);
          if (key === undefined || key.revokedAt !== null) continue;
          return { hash: key.hash, scopes: key.scopes, expiresAt: key.expiresAt, chatbot };
        }
        return null;
      }),
    changed: Stream.fromPubSub(changed),
  });

  return Context.make(ChatbotRegistry, registry).pipe(Context.add(ChatbotDirectory, directory));
});
