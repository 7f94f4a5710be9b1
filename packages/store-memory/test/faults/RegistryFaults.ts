/**
 * Registries and directories that break one promise each, as somebody who writes them over a database could;
 * above each stands what it breaks, and how one comes to it.
 */
import {
  changedFields,
  ChatbotTaken,
  KeyTaken,
  type AuditRecord,
  type Chatbot,
  type ChatbotDirectory,
  type ChatbotRegistry,
  type ChatbotSettings,
  type KeyRecord,
  type RegisteredChatbot,
  type RegisteredKey,
  type Scope,
} from "@parley/core";
import { Clock, Effect } from "effect";

export interface Chatbots {
  readonly registry: ChatbotRegistry["Service"];
  readonly directory: ChatbotDirectory["Service"];
}

export interface ChatbotsFault {
  readonly name: string;
  /** What is other than in the sound ones. */
  readonly break: (sound: Chatbots) => {
    readonly [Port in keyof Chatbots]?: Partial<Chatbots[Port]>;
  };
}

/** The largest limit that an audit can be asked for. */
export const everything = 2 ** 31 - 1;

/** A round trip to a database; real time, whatever the clock of a test says. */
export const roundTrip = (millis: number): Effect.Effect<void> =>
  Effect.promise(() => new Promise<void>((resolve) => setTimeout(resolve, millis)));

export const chatbotOf = (all: ReadonlyArray<RegisteredChatbot>, id: number): Chatbot | undefined =>
  all.find(({ chatbot }) => chatbot.id === id)?.chatbot;

const keysOf = (all: ReadonlyArray<RegisteredChatbot>, id: number): ReadonlyArray<RegisteredKey> =>
  all.find(({ chatbot }) => chatbot.id === id)?.keys ?? [];

export const keyOf = (
  all: ReadonlyArray<RegisteredChatbot>,
  id: number,
  keyId: string,
): RegisteredKey | undefined => keysOf(all, id).find((key) => key.id === keyId);

/** The list, with every key as `f` makes it. */
const withKeys = (
  list: ChatbotRegistry["Service"]["list"],
  f: (key: RegisteredKey) => RegisteredKey,
): ChatbotRegistry["Service"]["list"] =>
  Effect.map(list, (all) => all.map((one) => ({ ...one, keys: one.keys.map(f) })));

/** `create` and `change` over a unique index of what `indexed` makes of workspace and name. */
export const uniqueBy = (
  { registry }: Chatbots,
  indexed: (workspaceName: string, name: string) => string,
): Pick<Chatbots["registry"], "create" | "change"> => {
  const orTaken = Effect.fnUntraced(function* ({
    id = 0,
    name,
    workspaceName,
  }: Pick<Chatbot, "name" | "workspaceName"> & { readonly id?: number }) {
    const isTaken = (yield* registry.list).some(
      ({ chatbot }) =>
        chatbot.id !== id &&
        indexed(chatbot.workspaceName, chatbot.name) === indexed(workspaceName, name),
    );
    if (isTaken) return yield* new ChatbotTaken({ workspaceName, name });
  });
  return {
    create: (chatbot, actor) => Effect.andThen(orTaken(chatbot), registry.create(chatbot, actor)),
    change: Effect.fnUntraced(function* (id, change, actor) {
      const before = chatbotOf(yield* registry.list, id);
      if (before !== undefined) yield* orTaken({ ...before, ...change });
      return yield* registry.change(id, change, actor);
    }),
  };
};

export const registryFaults: ReadonlyArray<ChatbotsFault> = [
  // ChatbotRegistry.create: "That its name is taken is told before that a key is."
  // The keys of a declaration are compared with one another before the transaction begins.
  {
    name: "create tells that a declaration holds a key twice before it tells that the name is taken",
    break: ({ registry }) => ({
      registry: {
        create: (chatbot, actor) => {
          const { keys } = chatbot;
          const twice = keys.find(({ id }, at) => keys.findIndex((key) => key.id === id) < at);
          return twice === undefined
            ? registry.create(chatbot, actor)
            : Effect.fail(new KeyTaken({ keyId: twice.id }));
        },
      },
    }),
  },

  // NewChatbot: "Workspace and name identify it."; ChatbotTaken: "The workspace has another chatbot of that
  // name". The unique index is on SHA-256(workspace || name), as both together are too long for one, and
  // nothing stands between the two.
  {
    name: "create finds a namesake by workspace and name written one after the other without a separator",
    break: (sound) => ({
      registry: {
        create: uniqueBy(sound, (workspaceName, name) => workspaceName + name).create,
      },
    }),
  },

  // ChatbotTaken: "The workspace has another chatbot of that name"; NewChatbot: "Workspace and name identify
  // it." The check before the UPDATE takes the workspace of the row that was read, not the one of the change.
  {
    name: "change that moves and renames at once refuses a name that is taken in the workspace it leaves",
    break: ({ registry }) => ({
      registry: {
        change: (id, change, actor) =>
          Effect.flatMap(registry.list, (all) => {
            const before = chatbotOf(all, id);
            const { name } = change;
            if (before === undefined || name === undefined) {
              return registry.change(id, change, actor);
            }
            const { workspaceName } = before;
            const isTaken = all.some(
              ({ chatbot }) =>
                chatbot.id !== id &&
                chatbot.workspaceName === workspaceName &&
                chatbot.name === name,
            );
            return isTaken
              ? Effect.fail(new ChatbotTaken({ workspaceName, name }))
              : registry.change(id, change, actor);
          }),
      },
    }),
  },

  // ChatbotTaken: "nothing was written"; ChatbotRegistry: "Every change is written together with its lines in
  // the audit". The audit is inserted first, outside of the transaction that the unique index ends.
  {
    name: "change that is refused because the name is taken leaves its line in the audit",
    break: ({ registry }) => {
      /** Lines of no change, and how many others are older. */
      const strays: Array<{ readonly older: number; readonly line: AuditRecord }> = [];
      return {
        registry: {
          change: (id, change, actor) =>
            registry.change(id, change, actor).pipe(
              Effect.tapError((error) =>
                Effect.gen(function* () {
                  if (error._tag !== "ChatbotTaken") return;
                  const before = chatbotOf(yield* registry.list, id);
                  if (before === undefined) return;
                  const time = new Date(yield* Clock.currentTimeMillis);
                  const older = (yield* registry.audit(everything)).length;
                  const detail = changedFields(before, change).join(", ");
                  strays.push({
                    older,
                    line: { time, actor, chatbot: id, action: "change", detail },
                  });
                }),
              ),
            ),
          audit: (limit) =>
            Effect.map(registry.audit(everything), (newestFirst) => {
              const lines: Array<AuditRecord> = [];
              const addStrays = (older: number) => {
                for (const stray of strays) if (stray.older === older) lines.push(stray.line);
              };
              newestFirst.toReversed().forEach((line, at) => {
                addStrays(at);
                lines.push(line);
              });
              addStrays(newestFirst.length);
              return lines.toReversed().slice(0, limit);
            }),
        },
      };
    },
  },

  // ChatbotSettings: "`null` for nothing", "`null` for the usual one", …: the settings that are read hold null
  // where null was set. MySQL's JSON_MERGE_PATCH (RFC 7396) takes a null for the removal of the field.
  {
    name: "a setting that change sets to null is missing from the settings from then on",
    break: ({ directory, registry }) => {
      const missing = new Map<number, Set<string>>();
      const kept = (chatbot: Chatbot): Chatbot => {
        const fields = missing.get(chatbot.id);
        if (fields === undefined || fields.size === 0) return chatbot;
        const settings = Object.fromEntries(
          Object.entries(chatbot.settings).filter(([field]) => !fields.has(field)),
        ) as unknown as ChatbotSettings;
        return { ...chatbot, settings };
      };
      return {
        directory: {
          open: (keyId) =>
            Effect.map(directory.open(keyId), (opened) =>
              opened === null ? null : { ...opened, chatbot: kept(opened.chatbot) },
            ),
        },
        registry: {
          list: Effect.map(registry.list, (all) =>
            all.map((one) => ({ ...one, chatbot: kept(one.chatbot) })),
          ),
          change: (id, change, actor) =>
            Effect.gen(function* () {
              const before = chatbotOf(yield* registry.list, id);
              const after = yield* registry.change(id, change, actor);
              if (before === undefined || change.settings === undefined) return kept(after);
              const fields = missing.get(id) ?? new Set<string>();
              missing.set(id, fields);
              const changed = changedFields(before, { settings: change.settings });
              for (const [field, value] of Object.entries(change.settings)) {
                if (!changed.includes(field)) continue;
                if (value === null) fields.add(field);
                else fields.delete(field);
              }
              return kept(after);
            }),
        },
      };
    },
  },

  // ChatbotSettings.retentionDays: 1 to 36,500 days; what an operator set is what counts (Retention.ts erases by
  // what `list` tells). The column is a SMALLINT, and a database that is not strict stores its largest number.
  {
    name: "a retention of more than 32,767 days is kept as 32,767 days",
    break: ({ registry }) => {
      const largest = 32_767;
      return {
        registry: {
          create: (chatbot, actor) => {
            const { settings } = chatbot;
            const { retentionDays } = settings;
            if (retentionDays === null || retentionDays <= largest) {
              return registry.create(chatbot, actor);
            }
            const stored = { ...chatbot, settings: { ...settings, retentionDays: largest } };
            return Effect.map(registry.create(stored, actor), (made) => ({ ...made, settings }));
          },
          change: (id, change, actor) => {
            const retentionDays = change.settings?.retentionDays ?? null;
            if (retentionDays === null || retentionDays <= largest) {
              return registry.change(id, change, actor);
            }
            const settings = { ...change.settings, retentionDays: largest };
            return Effect.map(registry.change(id, { ...change, settings }, actor), (after) => ({
              ...after,
              settings: { ...after.settings, retentionDays },
            }));
          },
        },
      };
    },
  },

  // ChatbotRegistry.renameWorkspace: "Moves every chatbot of a workspace", and of no other; names are texts
  // that every store keeps as they are. MySQL's older collations (PAD SPACE) compare without spaces at the end.
  {
    name: "renameWorkspace also moves the chatbots of workspaces that differ only by spaces at the end",
    break: ({ registry }) => {
      const bare = (text: string) => text.replace(/ +$/, "");
      return {
        registry: {
          renameWorkspace: (from, to, actor) =>
            Effect.gen(function* () {
              if (from === to) return yield* registry.renameWorkspace(from, to, actor);
              const all = (yield* registry.list).map(({ chatbot }) => chatbot);
              const moved = all.filter(
                ({ workspaceName }) => workspaceName !== to && bare(workspaceName) === bare(from),
              );
              const names = new Set(
                all.filter(({ workspaceName }) => workspaceName === to).map(({ name }) => name),
              );
              for (const { name } of moved) {
                if (names.has(name)) {
                  return yield* Effect.fail(new ChatbotTaken({ workspaceName: to, name }));
                }
                names.add(name);
              }
              const workspaces = new Set(moved.map(({ workspaceName }) => workspaceName));
              if (workspaces.size === 0) workspaces.add(from);
              for (const workspace of workspaces) {
                yield* registry.renameWorkspace(workspace, to, actor);
              }
            }),
        },
      };
    },
  },

  // WorkspaceNotFound: "No chatbot is in a workspace of that name." That there is nothing to do is seen before
  // anything is read.
  {
    name: "renameWorkspace of an unknown workspace to its own name succeeds",
    break: ({ registry }) => ({
      registry: {
        renameWorkspace: (from, to, actor) =>
          from === to ? Effect.void : registry.renameWorkspace(from, to, actor),
      },
    }),
  },

  // KeyChange: "What is not named stays as it is." The key is read, changed and written back whole, without a
  // lock and without a version.
  {
    name: "of two changes of different fields of a key that come together, one is undone",
    break: ({ registry }) => ({
      registry: {
        changeKey: (id, keyId, change, actor) =>
          Effect.gen(function* () {
            const key = keyOf(yield* registry.list, id, keyId);
            if (key === undefined || key.revokedAt !== null) {
              return yield* registry.changeKey(id, keyId, change, actor);
            }
            const { expiresAt, name, scopes } = key;
            yield* roundTrip(5);
            yield* registry.changeKey(id, keyId, { expiresAt, name, scopes, ...change }, actor);
          }),
      },
    }),
  },

  // ChatbotRegistry.replaceKey: "gives that an end, or keeps an earlier one". Only an end that is still to come
  // counts as an earlier one: `CASE WHEN expires_at > now() AND expires_at < :end THEN expires_at ELSE :end END`.
  {
    name: "replaceKey gives a key that has expired its end, so that it opens its chatbot again",
    break: ({ registry }) => ({
      registry: {
        replaceKey: (id, keyId, replacement, end, actor) =>
          Effect.gen(function* () {
            const before = keyOf(yield* registry.list, id, keyId)?.expiresAt ?? null;
            const replaced = yield* registry.replaceKey(id, keyId, replacement, end, actor);
            const now = yield* Clock.currentTimeMillis;
            if (before === null || before.getTime() > now || before >= end) return replaced;
            yield* registry.changeKey(id, keyId, { expiresAt: end }, actor);
            return { ...replaced, expiresAt: end };
          }),
      },
    }),
  },

  // Replacement: "The key that replaces another, of which it has the name and the scopes", and nothing else: it
  // was never used. `INSERT INTO api_key SELECT …` copies the rest of the row along.
  {
    name: "the replacement of a key was last used when the key that it replaces was",
    break: ({ registry }) => {
      const copied = new Map<string, Date>();
      return {
        registry: {
          list: withKeys(registry.list, (key) => ({
            ...key,
            lastUsedAt: key.lastUsedAt ?? copied.get(key.id) ?? null,
          })),
          replaceKey: (id, keyId, replacement, end, actor) =>
            Effect.gen(function* () {
              const before = keyOf(yield* registry.list, id, keyId);
              const replaced = yield* registry.replaceKey(id, keyId, replacement, end, actor);
              const lastUsedAt = before?.lastUsedAt ?? copied.get(keyId) ?? null;
              if (lastUsedAt !== null) copied.set(replacement.id, lastUsedAt);
              return replaced;
            }),
        },
      };
    },
  },

  // RegisteredChatbot.keys: "Revoked and expired ones too, oldest first." They are ordered by SQLite's rowid, and
  // `INSERT OR REPLACE`, by which changeKey writes, gives the row a new one.
  {
    name: "a key that was changed stands behind the keys that are younger",
    break: ({ registry }) => {
      /** Between the places of the keys that were there at the time and of those that came later. */
      const places = new Map<string, number>();
      let changes = 0;
      return {
        registry: {
          list: Effect.map(registry.list, (all) =>
            all.map((one) => ({
              ...one,
              keys: one.keys
                .map((key, at) => ({ key, place: places.get(key.id) ?? at }))
                .toSorted((a, b) => a.place - b.place)
                .map(({ key }) => key),
            })),
          ),
          changeKey: (id, keyId, change, actor) =>
            Effect.gen(function* () {
              const keys = keysOf(yield* registry.list, id);
              yield* registry.changeKey(id, keyId, change, actor);
              const before = keys.find((key) => key.id === keyId);
              if (before === undefined || changedFields(before, change).length === 0) return;
              places.set(keyId, keys.length - 0.5 + ++changes * 1e-6);
            }),
        },
      };
    },
  },

  // ChatbotRegistry.list: "Every chatbot with its keys, ascending by id." The ids are parts of the names of
  // Redis hashes (or of a sort key of DynamoDB), and are sorted as such.
  {
    name: "list sorts the ids of chatbots as texts, so that 10 stands before 2",
    break: ({ registry }) => ({
      registry: {
        list: Effect.map(registry.list, (all) =>
          all.toSorted((a, b) => (String(a.chatbot.id) < String(b.chatbot.id) ? -1 : 1)),
        ),
      },
    }),
  },

  // ChatbotRegistry.audit: "newest first, at most `limit` lines." A creation and its keys are one document, as
  // they are written at once; the limit is one of documents, whose lines are unwound after it.
  {
    name: "audit counts the creation of a chatbot with its keys as one line of the limit",
    break: ({ registry }) => {
      const madeWith = new Map<string, number>();
      return {
        registry: {
          create: (chatbot, actor) =>
            Effect.tap(registry.create(chatbot, actor), ({ id }) =>
              Effect.sync(() => {
                for (const key of chatbot.keys) madeWith.set(key.id, id);
              }),
            ),
          audit: (limit) =>
            Effect.map(registry.audit(everything), (newestFirst) => {
              const documents = new Set<string>();
              const lines: Array<AuditRecord> = [];
              for (const [at, line] of newestFirst.entries()) {
                const isOfCreation =
                  line.action === "create" ||
                  (line.action === "add-key" && madeWith.get(line.detail) === line.chatbot);
                documents.add(isOfCreation ? `chatbot ${line.chatbot}` : `line ${at}`);
                if (documents.size > limit) break;
                lines.push(line);
              }
              return lines;
            }),
        },
      };
    },
  },

  // KeyRecord.expiresAt and Administration's PointInTime: "Every store keeps those", from 1970 on. Kept as a
  // number of milliseconds, and read by `row.expires_at ? new Date(row.expires_at) : null`.
  {
    name: "a key that ended at the very start of 1970 is read as one that never ends",
    break: ({ directory, registry }) => {
      const read = (expiresAt: Date | null): Date | null =>
        expiresAt?.getTime() ? expiresAt : null;
      return {
        directory: {
          open: (keyId) =>
            Effect.map(directory.open(keyId), (opened) =>
              opened === null ? null : { ...opened, expiresAt: read(opened.expiresAt) },
            ),
        },
        registry: {
          list: withKeys(registry.list, (key) => ({ ...key, expiresAt: read(key.expiresAt) })),
        },
      };
    },
  },

  // KeyRecord.hash and Opened.hash: "SHA-256 of the whole key's text." The driver wants a Buffer, and gets
  // `Buffer.from(hash.buffer)`: all of the memory that the hash may be only a part of, such as Node's pool.
  {
    name: "a hash that is a view of a part of a larger buffer is kept as that buffer",
    break: ({ registry }) => {
      const bound = <K extends Pick<KeyRecord, "hash">>(key: K): K => ({
        ...key,
        hash: new Uint8Array(key.hash.buffer).slice(),
      });
      return {
        registry: {
          create: (chatbot, actor) =>
            registry.create({ ...chatbot, keys: chatbot.keys.map(bound) }, actor),
          addKey: (id, key, actor) => registry.addKey(id, bound(key), actor),
          replaceKey: (id, keyId, replacement, end, actor) =>
            registry.replaceKey(id, keyId, bound(replacement), end, actor),
        },
      };
    },
  },

  // ChatbotDirectory.used: "Notes that keys were used just now". One TransactWriteItems of DynamoDB, with the
  // condition that the item is there, lest one be made; that it is cancelled is taken for "no such key".
  {
    name: "used notes the use of no key when one of them is unknown",
    break: ({ directory, registry }) => ({
      directory: {
        used: (keyIds) =>
          Effect.flatMap(registry.list, (all) => {
            const known = new Set(all.flatMap(({ keys }) => keys.map(({ id }) => id)));
            return keyIds.every((id) => known.has(id)) ? directory.used(keyIds) : Effect.void;
          }),
      },
    }),
  },

  // ChatbotDirectory.open: "What the key with this id opens"; Opened.chatbot is the chatbot as it is. The names
  // of workspaces are remembered by chatbot, and forgotten by change alone.
  {
    name: "open tells the workspace's former name of a chatbot that was opened before renameWorkspace",
    break: ({ directory, registry }) => {
      const workspaces = new Map<number, string>();
      return {
        directory: {
          open: (keyId) =>
            Effect.map(directory.open(keyId), (opened) => {
              if (opened === null) return null;
              const { chatbot } = opened;
              const workspaceName = workspaces.get(chatbot.id) ?? chatbot.workspaceName;
              workspaces.set(chatbot.id, workspaceName);
              return { ...opened, chatbot: { ...chatbot, workspaceName } };
            }),
        },
        registry: {
          change: (id, change, actor) =>
            Effect.tap(registry.change(id, change, actor), () =>
              Effect.sync(() => workspaces.delete(id)),
            ),
        },
      };
    },
  },

  // KeyRecord.scopes and Opened.scopes: an array of scopes, which may be empty (Administration's Key asks only
  // that none is there twice). They are one text, joined by commas, and "".split(",") is [""].
  {
    name: "the scopes of a key that has none are read as one scope that is an empty text",
    break: ({ directory, registry }) => {
      const read = (scopes: ReadonlyArray<Scope>) =>
        scopes.join(",").split(",") as unknown as ReadonlyArray<Scope>;
      return {
        directory: {
          open: (keyId) =>
            Effect.map(directory.open(keyId), (opened) =>
              opened === null ? null : { ...opened, scopes: read(opened.scopes) },
            ),
        },
        registry: {
          list: withKeys(registry.list, (key) => ({ ...key, scopes: read(key.scopes) })),
          replaceKey: (id, keyId, replacement, end, actor) =>
            Effect.map(registry.replaceKey(id, keyId, replacement, end, actor), (replaced) => ({
              ...replaced,
              scopes: read(replaced.scopes),
            })),
        },
      };
    },
  },

  // RegisteredChatbot.keys: "oldest first". A column of times to the second, and then the primary key.
  {
    name: "list sorts keys that were made within the same second by their ids",
    break: ({ registry }) => {
      const second = ({ createdAt }: RegisteredKey) => Math.floor(createdAt.getTime() / 1000);
      return {
        registry: {
          list: Effect.map(registry.list, (all) =>
            all.map(({ chatbot, keys }) => ({
              chatbot,
              keys: keys.toSorted((a, b) => second(a) - second(b) || (a.id < b.id ? -1 : 1)),
            })),
          ),
        },
      };
    },
  },

  // NewChatbot: a description is as long as a text may be. MySQL's TEXT holds 65,535 bytes.
  {
    name: "create keeps the first 65,535 bytes of a description",
    break: ({ registry }) => ({
      registry: {
        create: ({ description, ...rest }, actor) => {
          const bytes = new TextEncoder().encode(description).subarray(0, 65_535);
          const kept = new TextDecoder().decode(bytes).replace(/\ufffd$/, "");
          return Effect.map(registry.create({ ...rest, description: kept }, actor), (made) => ({
            ...made,
            description,
          }));
        },
      },
    }),
  },

  // RegisteredKey.createdAt. `ON UPDATE CURRENT_TIMESTAMP`, which MySQL's first TIMESTAMP column used to have.
  {
    name: "changeKey moves the time at which the key was made",
    break: ({ registry }) => {
      const moved = new Map<string, Date>();
      return {
        registry: {
          list: withKeys(registry.list, (key) => ({
            ...key,
            createdAt: moved.get(key.id) ?? key.createdAt,
          })),
          changeKey: (chatbot, keyId, change, actor) =>
            Effect.gen(function* () {
              yield* registry.changeKey(chatbot, keyId, change, actor);
              moved.set(keyId, new Date(yield* Clock.currentTimeMillis));
            }),
        },
      };
    },
  },

  // AuditRecord.detail: "The name of a chatbot that was created". The audit is joined with the chatbots.
  {
    name: "the audit of a creation tells the chatbot's present name",
    break: ({ registry }) => ({
      registry: {
        audit: (limit) =>
          Effect.gen(function* () {
            const [lines, all] = [yield* registry.audit(limit), yield* registry.list];
            return lines.map((line) =>
              line.action === "create"
                ? { ...line, detail: chatbotOf(all, line.chatbot)?.name ?? line.detail }
                : line,
            );
          }),
      },
    }),
  },

  // fieldChanges: "in the order of the fields' names; those of a chatbot's settings stand beside its own". Columns
  // and the JSON of the settings are compared one after the other.
  {
    name: "the audit tells a chatbot's own changed fields before those of its settings",
    break: ({ registry }) => {
      const isOwn = (field: string) => ["description", "name", "workspaceName"].includes(field);
      return {
        registry: {
          audit: (limit) =>
            Effect.map(registry.audit(limit), (lines) =>
              lines.map((line) => {
                if (line.action !== "change") return line;
                const fields = line.detail.split(", ");
                const sorted = fields.toSorted((a, b) => Number(isOwn(b)) - Number(isOwn(a)));
                return { ...line, detail: sorted.join(", ") };
              }),
            ),
        },
      };
    },
  },

  // ChatbotDirectory.open: "What the key with this id opens". What is remembered is forgotten by one's own changes.
  {
    name: "open tells a chatbot as it was when it was first opened, whatever another instance changed since",
    break: ({ directory, registry }) => {
      const remembered = new Map<number, Chatbot>();
      const forget = Effect.sync(() => remembered.clear());
      return {
        registry: {
          change: (...args) => Effect.ensuring(registry.change(...args), forget),
          renameWorkspace: (...args) => Effect.ensuring(registry.renameWorkspace(...args), forget),
        },
        directory: {
          open: (keyId) =>
            Effect.map(directory.open(keyId), (opened) => {
              if (opened === null) return null;
              const chatbot = remembered.get(opened.chatbot.id) ?? opened.chatbot;
              remembered.set(chatbot.id, chatbot);
              return { ...opened, chatbot };
            }),
        },
      };
    },
  },

  // ChatbotDirectory.used: "Notes that keys were used just now". One transaction, each part of which has the condition
  // that the key was not revoked.
  {
    name: "used notes the use of no key when one of them was revoked meanwhile",
    break: ({ directory, registry }) => ({
      directory: {
        used: (keyIds) =>
          Effect.flatMap(registry.list, (all) => {
            const isRevoked = all.some(({ keys }) =>
              keys.some(({ id, revokedAt }) => revokedAt !== null && keyIds.includes(id)),
            );
            return isRevoked ? Effect.void : directory.used(keyIds);
          }),
      },
    }),
  },
];
