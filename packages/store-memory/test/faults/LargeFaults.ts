/**
 * Registries and directories with one fault each that shows where something is long, large or rare, or where much
 * happens at once.
 */
import { ChatbotTaken, type ChatbotChange, type ChatbotSettings, type Opened } from "@parley/core";
import { Effect } from "effect";
import {
  chatbotOf,
  keyOf,
  roundTrip,
  type Chatbots,
  type ChatbotsFault,
} from "./RegistryFaults.ts";

/** `create` and `change` of chatbots whose texts were written through `map`. */
const withTexts = (
  { registry }: Chatbots,
  map: (text: string, field: string) => string,
): Pick<Chatbots["registry"], "create" | "change"> => {
  const written = <A extends object>(from: A): A =>
    Object.fromEntries(
      Object.entries(from).map(([field, value]) => [
        field,
        typeof value === "string" ? map(value, field) : value,
      ]),
    ) as A;
  return {
    create: (chatbot, actor) =>
      registry.create({ ...written(chatbot), settings: written(chatbot.settings) }, actor),
    change: (id, { settings, ...change }, actor) => {
      const texts: { settings?: Partial<ChatbotSettings> } =
        settings === undefined ? {} : { settings: written(settings) };
      return registry.change(id, { ...written(change), ...texts }, actor);
    },
  };
};

export const largeFaults: ReadonlyArray<ChatbotsFault> = [
  // LongText: up to 100,000 code points. Large texts are read and written in pieces.
  {
    name: "a character on the border of two pieces of a long text is lost",
    break: (sound) => ({
      registry: withTexts(sound, (text) => {
        let whole = "";
        for (let at = 0; at < text.length; at += 65_536) {
          whole += text.slice(at, at + 65_536).toWellFormed();
        }
        return whole;
      }),
    }),
  },

  // "What is so already is neither written nor noted", and only that. Only the start of a text is compared.
  {
    name: "a description that differs only far behind is taken for unchanged",
    break: ({ registry }) => ({
      registry: {
        change: Effect.fnUntraced(function* (id, change, actor) {
          const { description, ...rest } = change;
          const start = chatbotOf(yield* registry.list, id)?.description.slice(0, 65_535);
          const isSame = description !== undefined && description.slice(0, 65_535) === start;
          return yield* registry.change(id, isSame ? rest : change, actor);
        }),
      },
    }),
  },

  // ChatbotSettings.knowledge. A column that SQLite takes for a number where the text looks like one.
  {
    name: "a folder of documents that looks like a number loses its zeros",
    break: (sound) => ({
      registry: withTexts(sound, (text, field) =>
        field === "knowledge" && /^\d+(\.\d*)?$/.test(text) ? String(Number(text)) : text,
      ),
    }),
  },

  // KeyRecord.name: `string | null`. The mark for nothing of a bulk copy is not escaped.
  {
    name: "a key named like the bulk copy's mark for null has no name",
    break: ({ registry }) => ({
      registry: {
        addKey: (id, key, actor) =>
          registry.addKey(id, key.name === "\\N" ? { ...key, name: null } : key, actor),
      },
    }),
  },

  // KeyRecord.expiresAt. A column of the server's zone, where an hour of a Sunday in March is not.
  {
    name: "a key that ends in the hour that summer time leaves out ends an hour later",
    break: ({ registry }) => {
      const inZone = (time: Date | null) => {
        if (time === null || time.getUTCMonth() !== 2 || time.getUTCDay() !== 0) return time;
        const isLeftOut = time.getUTCDate() > 24 && time.getUTCHours() === 2;
        return isLeftOut ? new Date(time.getTime() + 3_600_000) : time;
      };
      return {
        registry: {
          addKey: (id, key, actor) =>
            registry.addKey(id, { ...key, expiresAt: inZone(key.expiresAt) }, actor),
        },
      };
    },
  },

  // AuditRecord.actor. A column of 255 UTF-16 units.
  {
    name: "the audit keeps 255 UTF-16 units of an actor",
    break: ({ registry }) => ({
      registry: {
        change: (id, change, actor) => registry.change(id, change, actor.slice(0, 255)),
      },
    }),
  },

  // audit: "at most `limit` lines", and as many as there are. The limit is sent as 16 bits.
  {
    name: "the audit's limit has 16 bits",
    break: ({ registry }) => ({ registry: { audit: (limit) => registry.audit(limit & 0xffff) } }),
  },

  // renameWorkspace: "every chatbot of a workspace …, or none of them". It moves some at a time.
  {
    name: "a workspace of many chatbots is moved in parts, and a name that is taken ends that in the middle",
    break: ({ registry }) => ({
      registry: {
        renameWorkspace: Effect.fnUntraced(function* (from, to, actor) {
          const all = (yield* registry.list).map(({ chatbot }) => chatbot);
          const moved = all.filter(({ workspaceName }) => workspaceName === from);
          if (from === to || moved.length <= 100) {
            return yield* registry.renameWorkspace(from, to, actor);
          }
          const there = all.filter(({ workspaceName }) => workspaceName === to);
          for (const { id, name } of moved) {
            if (there.some((other) => other.name === name)) {
              return yield* new ChatbotTaken({ workspaceName: to, name });
            }
            yield* Effect.ignore(registry.change(id, { workspaceName: to }, actor));
          }
        }),
      },
    }),
  },

  // KeyTaken. Keys are upserted by the hundred, and two of one id are seen only within that.
  {
    name: "an id that a new chatbot's keys have twice, more than a hundred apart, is not refused",
    break: ({ registry }) => ({
      registry: {
        create: (chatbot, actor) => {
          const { keys } = chatbot;
          const isFar = keys.length > 100 && keys[0]!.id === keys.at(-1)!.id;
          return registry.create(isFar ? { ...chatbot, keys: keys.slice(1) } : chatbot, actor);
        },
      },
    }),
  },

  // create: "Makes a chatbot with its keys", at once. Those beyond the fiftieth have transactions of their own.
  {
    name: "a new chatbot's keys beyond the fiftieth are written apart",
    break: ({ registry }) => ({
      registry: {
        create: Effect.fnUntraced(function* (chatbot, actor) {
          const { keys } = chatbot;
          if (new Set(keys.map(({ id }) => id)).size < keys.length) {
            return yield* registry.create(chatbot, actor);
          }
          const made = yield* registry.create({ ...chatbot, keys: keys.slice(0, 50) }, actor);
          for (const key of keys.slice(50)) {
            yield* Effect.yieldNow;
            yield* Effect.ignore(registry.addKey(made.id, key, actor));
          }
          return made;
        }),
      },
    }),
  },

  // change: "changes of different fields that come together all count". After ten vain attempts all fields are
  // written as they were read.
  {
    name: "of more than eleven changes at once some are taken back",
    break: ({ registry }) => ({
      registry: {
        change: Effect.fnUntraced(function* (id, change, actor) {
          const read = Effect.map(registry.list, (all) => chatbotOf(all, id));
          let before = yield* read;
          for (let attempt = 0; attempt < 10; attempt++) {
            yield* Effect.yieldNow;
            const now = yield* read;
            if (now === before) return yield* registry.change(id, change, actor);
            before = now;
          }
          yield* Effect.yieldNow;
          const { id: _, ...fields } = before!;
          const whole: ChatbotChange = {
            ...fields,
            ...change,
            settings: { ...fields.settings, ...change.settings },
          };
          return yield* registry.change(id, whole, actor);
        }),
      },
    }),
  },

  // replaceKey: "keeps an earlier one". The end is written as it was found before.
  {
    name: "two replacements of one key that overlap leave the later end",
    break: ({ registry }) => ({
      registry: {
        replaceKey: Effect.fnUntraced(function* (id, keyId, by, end, actor) {
          const before = keyOf(yield* registry.list, id, keyId);
          yield* roundTrip(1);
          const replaced = yield* registry.replaceKey(id, keyId, by, end, actor);
          if (before?.expiresAt !== null || replaced.expiresAt >= end) return replaced;
          yield* Effect.ignore(registry.changeKey(id, keyId, { expiresAt: end }, actor));
          return { ...replaced, expiresAt: end };
        }),
      },
    }),
  },

  // open: "at present, whoever changed it". What was opened often is remembered.
  {
    name: "a key that was opened 256 times is remembered, whoever changes it",
    break: ({ directory }) => {
      const times = new Map<string, number>();
      const hot = new Map<string, Opened>();
      return {
        directory: {
          open: Effect.fnUntraced(function* (keyId) {
            const known = hot.get(keyId);
            if (known !== undefined) return known;
            const opened = yield* directory.open(keyId);
            times.set(keyId, (times.get(keyId) ?? 0) + 1);
            if (opened !== null && times.get(keyId)! >= 256) hot.set(keyId, opened);
            return opened;
          }),
        },
      };
    },
  },

  // open: "at present". A look-up joins one that is under way, and so began before a change that is over.
  {
    name: "who opens a key while another does gets what the other found",
    break: ({ directory }) => {
      const underWay = new Map<string, Promise<Opened | null>>();
      return {
        directory: {
          open: (keyId) =>
            Effect.promise(() => {
              const joined = underWay.get(keyId);
              if (joined !== undefined) return joined;
              const found = Effect.runPromise(
                Effect.tap(directory.open(keyId), () => roundTrip(1)),
              ).finally(() => underWay.delete(keyId));
              underWay.set(keyId, found);
              return found;
            }),
        },
      };
    },
  },
];
