/**
 * Registries and directories with one fault each that several writes after each other lead to, or values that the kit
 * once did not know.
 */
import {
  changedFields,
  ChatbotTaken,
  KeyTaken,
  type AuditRecord,
  type ChatbotChange,
  type RegisteredKey,
} from "@parley/core";
import { Clock, Effect } from "effect";
import {
  chatbotOf,
  everything,
  keyOf,
  roundTrip,
  uniqueBy,
  type Chatbots,
  type ChatbotsFault,
} from "./RegistryFaults.ts";

/** Whose lines in the audit stand for writes that are made without one. */
const nobody = "\0nobody";

const auditOfSomebody =
  ({ registry }: Chatbots): Chatbots["registry"]["audit"] =>
  (limit) =>
    Effect.map(registry.audit(everything), (lines) =>
      lines.filter(({ actor }) => actor !== nobody).slice(0, limit),
    );

export const sequenceFaults: ReadonlyArray<ChatbotsFault> = [
  // NewChatbot: "compared code point by code point". utf8mb4_general_ci gives all above U+FFFF one weight.
  {
    name: "characters outside the basic plane are equal in the unique index of names",
    break: (sound) => ({
      registry: uniqueBy(sound, (workspaceName, name) =>
        JSON.stringify([workspaceName, name]).replace(/[\u{10000}-\u{10FFFF}]/gu, "\uFFFD"),
      ),
    }),
  },

  // NewChatbot: "Workspace and name identify it." A key-value store has them under `${workspace}/${name}`.
  {
    name: "workspace and name are joined by a slash into one unique key",
    break: (sound) => ({
      registry: uniqueBy(sound, (workspaceName, name) => `${workspaceName}/${name}`),
    }),
  },

  // ChatbotTaken: "has another chatbot of that name". An index of names from which a rename takes nothing out.
  {
    name: "the names of chatbots stay taken in the workspace that they were moved from",
    break: ({ registry }) => {
      const left = new Set<string>();
      const entry = (workspaceName: string, name: string) => JSON.stringify([workspaceName, name]);
      return {
        registry: {
          create: (chatbot, actor) => {
            const { name, workspaceName } = chatbot;
            return left.has(entry(workspaceName, name))
              ? Effect.fail(new ChatbotTaken({ workspaceName, name }))
              : registry.create(chatbot, actor);
          },
          renameWorkspace: Effect.fnUntraced(function* (from, to, actor) {
            const all = yield* registry.list;
            yield* registry.renameWorkspace(from, to, actor);
            for (const { chatbot } of all) {
              if (chatbot.workspaceName !== from || from === to) continue;
              left.add(entry(from, chatbot.name));
              left.delete(entry(to, chatbot.name));
            }
          }),
        },
      };
    },
  },

  // ChatbotTaken. A change of both is two statements, and what is between them must be free, too.
  {
    name: "a chatbot that changes workspace and name at once must not collide on the way",
    break: ({ registry }) => ({
      registry: {
        change: Effect.fnUntraced(function* (id, change, actor) {
          const { name, workspaceName } = change;
          const all = yield* registry.list;
          const before = chatbotOf(all, id);
          const inBetween = all.find(
            ({ chatbot }) =>
              chatbot.id !== id &&
              chatbot.workspaceName === workspaceName &&
              chatbot.name === before?.name,
          );
          if (workspaceName !== undefined && name !== undefined && inBetween !== undefined) {
            return yield* new ChatbotTaken({ workspaceName, name: before!.name });
          }
          return yield* registry.change(id, change, actor);
        }),
      },
    }),
  },

  // "What is so already is neither written nor noted", and only that. localeCompare tells what is so.
  {
    name: "a text that differs from the present one only for code points, not for a reader, is not changed",
    break: ({ registry }) => ({
      registry: {
        change: Effect.fnUntraced(function* (id, change, actor) {
          const before = chatbotOf(yield* registry.list, id);
          if (before === undefined) return yield* registry.change(id, change, actor);
          const differing = <A extends object>(from: A, known: object) =>
            Object.fromEntries(
              Object.entries(from).filter(([field, value]) => {
                const text: unknown = known[field as keyof typeof known];
                const both = typeof value === "string" && typeof text === "string";
                return !both || value.localeCompare(text) !== 0;
              }),
            );
          const { settings = {}, ...own } = change;
          const rest: ChatbotChange = {
            ...differing(own, before),
            settings: differing(settings, before.settings),
          };
          return yield* registry.change(id, rest, actor);
        }),
      },
    }),
  },

  // ChatbotTaken: "nothing was written"; `open` "at present". A cache is written before the store refuses.
  {
    name: "a change that failed is opened nevertheless",
    break: ({ directory, registry }) => {
      const ahead = new Map<number, ChatbotChange>();
      return {
        registry: {
          change: Effect.fnUntraced(function* (id, change, actor) {
            ahead.set(id, change);
            const changed = yield* registry.change(id, change, actor);
            ahead.delete(id);
            return changed;
          }),
        },
        directory: {
          open: (keyId) =>
            Effect.map(directory.open(keyId), (opened) => {
              const change = opened === null ? undefined : ahead.get(opened.chatbot.id);
              if (opened === null || change === undefined) return opened;
              const { chatbot } = opened;
              const settings = { ...chatbot.settings, ...change.settings };
              return { ...opened, chatbot: { ...chatbot, ...change, settings } };
            }),
        },
      };
    },
  },

  // A key's id is base 62. Where one is added ids are compared by a collation without case.
  {
    name: "a key's id is taken by one that differs in case",
    break: ({ registry }) => ({
      registry: {
        addKey: Effect.fnUntraced(function* (id, key, actor) {
          const wanted = key.id.toLowerCase();
          const all = yield* registry.list;
          const taken = all.some(({ keys }) =>
            keys.some((other) => other.id.toLowerCase() === wanted),
          );
          if (taken && chatbotOf(all, id) !== undefined)
            return yield* new KeyTaken({ keyId: key.id });
          yield* registry.addKey(id, key, actor);
        }),
      },
    }),
  },

  // AuditRecord.detail: "after a colon its changed fields". Noted is Object.keys of the change.
  {
    name: "a changed key's line names the fields that were sent along unchanged",
    break: ({ registry }) => ({
      registry: {
        changeKey: (id, keyId, change, actor) => {
          const fields = Object.keys(change).toSorted().join(", ");
          return registry.changeKey(id, keyId, change, `${actor}\0${keyId}: ${fields}`);
        },
        audit: (limit) =>
          Effect.map(registry.audit(limit), (lines) =>
            lines.map((line) => {
              const [actor = "", detail = line.detail] = line.actor.split("\0");
              return { ...line, actor, detail };
            }),
          ),
      },
    }),
  },

  // changeKey: "a key that was not revoked". What changes nothing is answered before that is looked at.
  {
    name: "a change that changes nothing succeeds on a revoked key",
    break: ({ registry }) => ({
      registry: {
        changeKey: Effect.fnUntraced(function* (id, keyId, change, actor) {
          const key = keyOf(yield* registry.list, id, keyId);
          if (key !== undefined && changedFields(key, change).length === 0) return;
          yield* registry.changeKey(id, keyId, change, actor);
        }),
      },
    }),
  },

  // Replacement: of the other it has the name and the scopes, once. Both keys point to one row of them.
  {
    name: "a key and its replacement share one row of name and scopes",
    break: (sound) => {
      const { registry } = sound;
      const families = new Map<string, Set<string>>();
      return {
        registry: {
          audit: auditOfSomebody(sound),
          replaceKey: Effect.fnUntraced(function* (id, keyId, by, end, actor) {
            const replaced = yield* registry.replaceKey(id, keyId, by, end, actor);
            const family = families.get(keyId) ?? new Set([keyId]);
            families.set(keyId, family).set(by.id, family.add(by.id));
            return replaced;
          }),
          changeKey: Effect.fnUntraced(function* (id, keyId, change, actor) {
            yield* registry.changeKey(id, keyId, change, actor);
            const { expiresAt: _, ...common } = change;
            for (const other of families.get(keyId) ?? []) {
              if (other === keyId) continue;
              yield* Effect.ignore(registry.changeKey(id, other, common, nobody));
            }
          }),
        },
      };
    },
  },

  // revokeKey: "Ends a key", that one. The replacement refers to what it replaced ON DELETE CASCADE.
  {
    name: "revoking a replaced key revokes its replacement",
    break: ({ registry }) => {
      const after = new Map<string, string>();
      return {
        registry: {
          replaceKey: Effect.fnUntraced(function* (id, keyId, by, end, actor) {
            const replaced = yield* registry.replaceKey(id, keyId, by, end, actor);
            after.set(keyId, by.id);
            return replaced;
          }),
          revokeKey: Effect.fnUntraced(function* (id, keyId, actor) {
            yield* registry.revokeKey(id, keyId, actor);
            const next = after.get(keyId);
            if (next !== undefined) yield* Effect.ignore(registry.revokeKey(id, next, actor));
          }),
        },
      };
    },
  },

  // RegisteredChatbot.keys: "Revoked and expired ones too". The list is spared those of long ago.
  {
    name: "a key that was revoked a month ago is not listed",
    break: ({ registry }) => ({
      registry: {
        list: Effect.gen(function* () {
          const limit = (yield* Clock.currentTimeMillis) - 30 * 86_400_000;
          return (yield* registry.list).map(({ chatbot, keys }) => ({
            chatbot,
            keys: keys.filter(
              ({ revokedAt }) => revokedAt === null || revokedAt.getTime() >= limit,
            ),
          }));
        }),
      },
    }),
  },

  // RegisteredChatbot.keys: "oldest first". They are ordered by when their rows were written last.
  {
    name: "keys are listed in the order of their last use",
    break: ({ registry }) => {
      const written = ({ createdAt, lastUsedAt }: RegisteredKey) =>
        Math.max(createdAt.getTime(), lastUsedAt?.getTime() ?? -Infinity);
      return {
        registry: {
          list: Effect.map(registry.list, (all) =>
            all.map(({ chatbot, keys }) => ({
              chatbot,
              keys: keys.toSorted((a, b) => written(a) - written(b)),
            })),
          ),
        },
      };
    },
  },

  // audit: "at most `limit` lines". A replacement is one row, of which two lines are made after the limit.
  {
    name: "a limit of the audit between the two lines of a replacement gives both",
    break: ({ registry }) => {
      const pairs = new WeakMap<AuditRecord, object>();
      return {
        registry: {
          replaceKey: Effect.fnUntraced(function* (id, keyId, by, end, actor) {
            const replaced = yield* registry.replaceKey(id, keyId, by, end, actor);
            const [newest, other] = yield* registry.audit(2);
            if (newest?.action === "change-key") pairs.set(newest, newest).set(other!, newest);
            return replaced;
          }),
          audit: (limit) =>
            Effect.map(registry.audit(limit + 1), (lines) => {
              const [inside, outside] = [lines[limit - 1], lines[limit]];
              const pair = inside === undefined ? undefined : pairs.get(inside);
              const isTorn =
                pair !== undefined && outside !== undefined && pairs.get(outside) === pair;
              return isTorn ? lines : lines.slice(0, limit);
            }),
        },
      };
    },
  },

  // lastUsedAt: "To the minute". To spare writes a use is noted when the last one was an hour ago.
  {
    name: "the use of a key is noted at most once an hour",
    break: ({ directory, registry }) => ({
      directory: {
        used: Effect.fnUntraced(function* (keyIds) {
          const limit = (yield* Clock.currentTimeMillis) - 3_600_000;
          const recent = (yield* registry.list)
            .flatMap(({ keys }) => keys)
            .filter(({ lastUsedAt }) => lastUsedAt !== null && lastUsedAt.getTime() > limit)
            .map(({ id }) => id);
          yield* directory.used(keyIds.filter((id) => !recent.includes(id)));
        }),
      },
    }),
  },

  // used: "Notes that keys were used", all of them. The loop over parts of 500 goes on one too far.
  {
    name: "of more than 500 used keys one after each 500 is left out",
    break: ({ directory }) => ({
      directory: {
        used: Effect.fnUntraced(function* (keyIds) {
          for (let at = 0; at < keyIds.length; at += 501) {
            yield* directory.used(keyIds.slice(at, at + 500));
          }
        }),
      },
    }),
  },

  // used, and nothing else. The key is loaded, and saved as a whole with the time of its use.
  {
    name: "noting the use of a key undoes a change of the key that comes at the same time",
    break: (sound) => ({
      registry: { audit: auditOfSomebody(sound) },
      directory: {
        used: Effect.fnUntraced(function* (keyIds) {
          const loaded = yield* sound.registry.list;
          yield* roundTrip(1);
          for (const { chatbot, keys } of loaded) {
            for (const { expiresAt, id, name, scopes } of keys) {
              if (!keyIds.includes(id)) continue;
              const whole = { expiresAt, name, scopes };
              yield* Effect.ignore(sound.registry.changeKey(chatbot.id, id, whole, nobody));
            }
          }
          yield* sound.directory.used(keyIds);
        }),
      },
    }),
  },

  // "Every change is written together with its lines in the audit." The line is a statement of its own.
  {
    name: "a key that is added is there before its line in the audit, and without it when that is interrupted",
    break: ({ registry }) => ({
      registry: {
        addKey: Effect.fnUntraced(function* (id, key, actor) {
          yield* registry.addKey(id, key, `${nobody}${key.id}`);
          yield* roundTrip(1);
          noted.set(key.id, actor);
        }),
        audit: (limit) =>
          Effect.map(registry.audit(everything), (lines) =>
            lines
              .filter(({ actor, detail }) => !actor.startsWith(nobody) || noted.has(detail))
              .map((line) =>
                line.actor.startsWith(nobody) ? { ...line, actor: noted.get(line.detail)! } : line,
              )
              .slice(0, limit),
          ),
      },
    }),
  },
];

/** Who added which keys, as far as it was noted, by any instance. */
const noted = new Map<string, string>();
