/**
 * Registries and directories with one fault each, of what is left behind and what happens at once, that the kit once
 * missed.
 */
import { changedFields, ChatbotTaken, KeyNotFound, keyState, type Chatbot } from "@parley/core";
import { Clock, Effect } from "effect";
import { keyOf, roundTrip, type Chatbots, type ChatbotsFault } from "./RegistryFaults.ts";

/** What VARCHAR(255) keeps where longer texts are cut. */
const cut = (text: string) => [...text].slice(0, 255).join("");

/** Chatbots that are to be renamed to another workspace, when nothing was in the way a round trip before. */
const free = ({ registry }: Chatbots, from: string, to: string) =>
  Effect.gen(function* () {
    const all = (yield* registry.list).map(({ chatbot }) => chatbot);
    const there = all.filter(({ workspaceName }) => workspaceName === to);
    const moved = all.filter(({ workspaceName }) => workspaceName === from);
    const isTaken = moved.some(({ name }) => there.some((other) => other.name === name));
    if (from === to || isTaken) return [];
    yield* roundTrip(5);
    return moved;
  });

export const missedRegistryFaults: ReadonlyArray<ChatbotsFault> = [
  // RegisteredChatbot.keys: "Revoked and expired ones too, oldest first." Two queries put together.
  {
    name: "list tells the keys that were revoked after those that were not, not oldest first",
    break: ({ registry }) => ({
      registry: {
        list: Effect.map(registry.list, (all) =>
          all.map(({ chatbot, keys }) => ({
            chatbot,
            keys: [
              ...keys.filter(({ revokedAt }) => revokedAt === null),
              ...keys.filter(({ revokedAt }) => revokedAt !== null),
            ],
          })),
        ),
      },
    }),
  },

  // ChatbotTaken: "nothing was written." The settings are another table, written first and outside of
  // the transaction.
  {
    name: "a change that was refused for a taken name leaves its settings written",
    break: ({ registry }) => ({
      registry: {
        change: (id, change, actor) =>
          registry.change(id, change, actor).pipe(
            Effect.catchTag("ChatbotTaken", (taken) =>
              Effect.gen(function* () {
                const { settings } = change;
                if (settings !== undefined) yield* registry.change(id, { settings }, actor);
                return yield* Effect.fail(taken);
              }),
            ),
          ),
      },
    }),
  },

  // ChatbotRegistry.change gives the chatbot as it is then; ChatbotChange: "What is not named stays as it
  // is." The identity map of an ORM, which knows nothing of other processes.
  {
    name: "change gives a chatbot without what another instance changed meanwhile",
    break: ({ registry }) => {
      const known = new Map<number, Chatbot>();
      return {
        registry: {
          create: (chatbot, actor) =>
            Effect.map(registry.create(chatbot, actor), (made) => {
              known.set(made.id, made);
              return made;
            }),
          change: (id, change, actor) =>
            Effect.map(registry.change(id, change, actor), (kept) => {
              const before = known.get(id) ?? kept;
              const settings = { ...before.settings, ...change.settings };
              const after: Chatbot = { ...before, ...change, settings };
              known.set(id, after);
              return after;
            }),
          renameWorkspace: (from, to, actor) =>
            Effect.map(registry.renameWorkspace(from, to, actor), () => {
              known.clear();
            }),
        },
      };
    },
  },

  // ChatbotRegistry.change: "changes of different fields that come together all count." The workspace is
  // half of what is unique, so it is read and written with every change.
  {
    name: "a change moves its chatbot back where it was moved to another workspace at the same time",
    break: ({ registry }) => ({
      registry: {
        change: (id, change, actor) =>
          Effect.gen(function* () {
            if (change.workspaceName !== undefined) {
              return yield* registry.change(id, change, actor);
            }
            const before = (yield* registry.list).find(({ chatbot }) => chatbot.id === id);
            yield* roundTrip(5);
            if (before === undefined) return yield* registry.change(id, change, actor);
            const { workspaceName } = before.chatbot;
            return yield* registry.change(id, { ...change, workspaceName }, actor);
          }),
      },
    }),
  },

  // ChatbotRegistry.renameWorkspace: "Moves every chatbot of a workspace to a workspace of another name,
  // or none of them." All is checked before, then each is moved on its own (MongoDB without a
  // transaction).
  {
    name: "a rename that loses a race for a name moves the other chatbots of its workspace",
    break: (sound) => ({
      registry: {
        renameWorkspace: (from, to, actor) =>
          Effect.gen(function* () {
            const moved = yield* free(sound, from, to);
            if (moved.length === 0) return yield* sound.registry.renameWorkspace(from, to, actor);
            const refusals: Array<ChatbotTaken> = [];
            for (const { id } of moved) {
              yield* sound.registry.change(id, { workspaceName: to }, actor).pipe(
                Effect.asVoid,
                Effect.catchTag("ChatbotNotFound", Effect.die),
                Effect.catchTag("ChatbotTaken", (taken) =>
                  Effect.sync(() => {
                    refusals.push(taken);
                  }),
                ),
              );
            }
            const refusal = refusals[0];
            if (refusal !== undefined) return yield* Effect.fail(refusal);
          }),
      },
    }),
  },

  // Administration's Key: `name: Schema.NullOr(Text)`, and Text: "A string of any length that every store
  // keeps." VARCHAR(255), as for the names of chatbots, without the strict mode.
  {
    name: "the name of a key is cut after 255 code points",
    break: ({ registry }) => ({
      registry: {
        create: (chatbot, actor) => {
          const keys = chatbot.keys.map((key) => ({
            ...key,
            name: key.name === null ? null : cut(key.name),
          }));
          return registry.create({ ...chatbot, keys }, actor);
        },
        addKey: (id, key, actor) =>
          registry.addKey(id, { ...key, name: key.name === null ? null : cut(key.name) }, actor),
        changeKey: (id, keyId, change, actor) =>
          registry.changeKey(
            id,
            keyId,
            typeof change.name === "string" ? { ...change, name: cut(change.name) } : change,
            actor,
          ),
      },
    }),
  },

  // ChatbotRegistry.revokeKey: "Ends a key for ever"; an expired one is not revoked (changeKey could give
  // it another end). "No live key" read literally.
  {
    name: "revokeKey does not find a key that has expired",
    break: ({ registry }) => ({
      registry: {
        revokeKey: (id, keyId, actor) =>
          Effect.gen(function* () {
            const now = yield* Clock.currentTimeMillis;
            const key = (yield* registry.list)
              .find(({ chatbot }) => chatbot.id === id)
              ?.keys.find((one) => one.id === keyId);
            if (key !== undefined && keyState(key, now) === "expired") {
              return yield* Effect.fail(new KeyNotFound({ keyId }));
            }
            yield* registry.revokeKey(id, keyId, actor);
          }),
      },
    }),
  },

  // ChatbotSettings.helloMessage: "The text of the entry that a chat of section 4.2 starts with; `null`
  // turns it off", NullOr(LongText): an empty text is one. `helloMessage || null`.
  {
    name: "an empty hello message is kept as none",
    break: ({ registry }) => ({
      registry: {
        create: (chatbot, actor) => {
          const helloMessage = chatbot.settings.helloMessage || null;
          return registry.create(
            { ...chatbot, settings: { ...chatbot.settings, helloMessage } },
            actor,
          );
        },
        change: (id, change, actor) =>
          registry.change(
            id,
            change.settings?.helloMessage === ""
              ? { ...change, settings: { ...change.settings, helloMessage: null } }
              : change,
            actor,
          ),
      },
    }),
  },

  // ChatbotDirectory.open: "`null` when it is unknown or revoked"; Administration: a change "holds in
  // every process within a second (where hints are lost, within 30)". Unknown ids are remembered, so that
  // guessing costs no query, and forgotten only by what this process writes.
  {
    name: "open does not find a key that another instance added after it was asked for in vain",
    break: ({ directory, registry }) => {
      const unknown = new Set<string>();
      return {
        directory: {
          open: (keyId) =>
            Effect.gen(function* () {
              if (unknown.has(keyId)) return null;
              const opened = yield* directory.open(keyId);
              if (opened === null) unknown.add(keyId);
              return opened;
            }),
        },
        registry: {
          create: (chatbot, actor) =>
            Effect.map(registry.create(chatbot, actor), (made) => {
              for (const { id } of chatbot.keys) unknown.delete(id);
              return made;
            }),
          addKey: (id, key, actor) =>
            Effect.map(registry.addKey(id, key, actor), () => {
              unknown.delete(key.id);
            }),
          replaceKey: (id, keyId, replacement, end, actor) =>
            Effect.map(registry.replaceKey(id, keyId, replacement, end, actor), (replaced) => {
              unknown.delete(replacement.id);
              return replaced;
            }),
        },
      };
    },
  },

  // ChatbotRegistry: "what is so already is neither written nor noted", and nothing else; `change`: "Changes a
  // chatbot". What is so already is judged by what this instance wrote last, not by what is stored.
  {
    name: "a change back to what this instance wrote last is dropped, though another changed it meanwhile",
    break: ({ registry }) => {
      const written = new Map<number, Chatbot>();
      const remember = (chatbot: Chatbot) =>
        Effect.sync(() => {
          written.set(chatbot.id, chatbot);
        });
      return {
        registry: {
          create: (chatbot, actor) => Effect.tap(registry.create(chatbot, actor), remember),
          change: (id, change, actor) => {
            const last = written.get(id);
            return last !== undefined && changedFields(last, change).length === 0
              ? Effect.succeed(last)
              : Effect.tap(registry.change(id, change, actor), remember);
          },
          renameWorkspace: (from, to, actor) =>
            Effect.tap(registry.renameWorkspace(from, to, actor), () =>
              Effect.sync(() => {
                written.clear();
              }),
            ),
        },
      };
    },
  },

  // ChatbotRegistry.renameWorkspace: "Moves every chatbot of a workspace to a workspace of another name, or none of
  // them." All are checked first and then moved one by one, as over MongoDB without a transaction.
  {
    name: "renameWorkspace moves only some when a name in the other workspace is taken meanwhile",
    break: (sound) => ({
      registry: {
        renameWorkspace: (from, to, actor) =>
          Effect.gen(function* () {
            const moved = yield* free(sound, from, to);
            if (moved.length === 0) return yield* sound.registry.renameWorkspace(from, to, actor);
            for (const { id } of moved) {
              yield* sound.registry
                .change(id, { workspaceName: to }, actor)
                .pipe(Effect.catchTag("ChatbotNotFound", Effect.die));
            }
          }),
      },
    }),
  },

  // ChatbotRegistry.changeKey: "Changes a key that was not revoked"; an expired one was not.
  // The state of the key is asked of `keyState`, and only "live" will do.
  {
    name: "changeKey does not find a key that has expired",
    break: ({ registry }) => ({
      registry: {
        changeKey: (id, keyId, change, actor) =>
          Effect.gen(function* () {
            const now = yield* Clock.currentTimeMillis;
            const key = keyOf(yield* registry.list, id, keyId);
            if (key !== undefined && keyState(key, now) !== "live") {
              return yield* Effect.fail(new KeyNotFound({ keyId }));
            }
            yield* registry.changeKey(id, keyId, change, actor);
          }),
      },
    }),
  },

  // ChatbotRegistry.replaceKey: "Adds the replacement of a key that was not revoked, and gives that an end".
  // The key is read, and what is then written does not depend on that it is still not revoked.
  {
    name: "replaceKey adds the replacement of a key that is revoked at the same time",
    break: ({ registry }) => ({
      registry: {
        replaceKey: (id, keyId, replacement, end, actor) =>
          Effect.gen(function* () {
            const key = keyOf(yield* registry.list, id, keyId);
            if (key === undefined || key.revokedAt !== null) {
              return yield* Effect.fail(new KeyNotFound({ keyId }));
            }
            yield* roundTrip(5);
            const { name, scopes } = key;
            yield* registry
              .addKey(id, { ...replacement, name, scopes }, actor)
              .pipe(Effect.catchTag("ChatbotNotFound", Effect.die));
            const earlier =
              key.expiresAt !== null && key.expiresAt <= end ? key.expiresAt : undefined;
            if (earlier === undefined) {
              yield* registry
                .changeKey(id, keyId, { expiresAt: end }, actor)
                .pipe(Effect.catchTag("KeyNotFound", () => Effect.void));
            }
            return { name, scopes, expiresAt: earlier ?? end };
          }),
      },
    }),
  },
];
