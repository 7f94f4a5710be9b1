/**
 * What random comparison does not notice about the registry: concurrent changes, interruptions, long values, and what a
 * caller does with returned rows.
 */
import { Effect, Fiber, Stream } from "effect";
import * as Errors from "../model/Errors.ts";
import { ChatbotRegistry } from "../ports/ChatbotRegistry.ts";
import type { StorePorts } from "../ports/Store.ts";
import { TurnStore } from "../ports/TurnStore.ts";
import { defaultEntryQuery } from "../model/ListQuery.ts";
import { check, failsWith, same, type Check } from "./Check.ts";
import {
  actor,
  append,
  atOnce,
  auditOf,
  create,
  entry,
  exportAll,
  findRegistered,
  findRegisteredKey,
  history,
  instances,
  keyOf,
  list,
  newChatbotFields,
  newKey,
  tagOf,
  takeTurn,
  usage,
} from "./Fixtures.ts";
import { fresh, type StoreUnderTest } from "./StoreUnderTest.ts";

const expiry = new Date("2032-01-01T00:00:00Z");

/** The registries of both instances, and the directory of the first instance. */
const services = Effect.map(instances, ([{ directory, registry }, { registry: other }]) => ({
  registry,
  other,
  directory,
}));

const newOne = (more: Parameters<typeof newChatbotFields>[0] = {}) =>
  ChatbotRegistry.use((registry) => registry.create(newChatbotFields(more), actor));

/** Overwrites everything in a value, as a careless caller may. */
const overwrite = (value: unknown): void => {
  if (value instanceof Date) value.setTime(0);
  else if (value instanceof Uint8Array) value.fill(0);
  else if (typeof value === "object" && value !== null)
    for (const [field, item] of Object.entries(value)) {
      overwrite(item);
      if (!Object.isFrozen(value)) Reflect.set(value, field, "overwritten");
    }
};

export const registryChecks: ReadonlyArray<Check<StorePorts | StoreUnderTest>> = [
  check("what a caller does with rows it passed or received changes nothing", function* () {
    const [first, second] = yield* instances;
    const fields = newChatbotFields({ keys: [newKey({ expiresAt: new Date(expiry) })] });
    const keyId = fields.keys[0]!.id;
    const chatbot = yield* first.registry.create(fields, actor);
    const { id } = chatbot;
    overwrite(fields);
    overwrite(chatbot);
    const { id: chatId } = yield* create(id, { name: "n", userRef: "u", helloMessage: "Hello" });
    const newEntry = entry("q", { usage: { ...usage } });
    const turn = yield* takeTurn(id, chatId, keyOf("key"));
    yield* append(turn, newEntry);
    overwrite(newEntry);
    yield* append(yield* takeTurn(id, chatId), entry("r", { usage }));
    const calls: ReadonlyArray<Effect.Effect<unknown, unknown, StorePorts>> = [
      first.chats.createChat(id, { name: null, userRef: null, helloMessage: null }, keyOf("chat")),
      first.turns.take(id, chatId, keyOf("key")),
      list(id),
      history(id, chatId),
      exportAll(id),
      first.registry.list,
      first.registry.audit(3),
      first.directory.find(keyId),
      first.registry.change(id, { description: "d" }, actor),
      TurnStore.use((turns) => turns.earlier(turn, Number.MAX_SAFE_INTEGER)),
    ];
    const contents = Effect.gen(function* () {
      const records = yield* Stream.runCollect(second.archive.export(id, "reader"));
      const { items } = yield* second.chats.listEntries(id, chatId, { ...defaultEntryQuery });
      const registered = (yield* second.registry.list).find(({ chatbot }) => chatbot.id === id);
      const log = yield* auditOf(id);
      return structuredClone({
        records,
        items,
        registered,
        log: log.filter((line) => !line.includes("export")),
      });
    });
    for (const call of calls) yield* call;
    const before = yield* contents;
    for (const [n, call] of calls.entries()) {
      overwrite(yield* call);
      yield* same(`the contents after call ${n}`, yield* contents, before);
    }
  }),

  check("a chatbot and its keys are stored as declared, up to the greatest lengths", function* () {
    const { directory, registry } = yield* services;
    const key = newKey({
      name: "n".repeat(300),
      // A hash may be a view of a larger buffer.
      hash: new Uint8Array(64).fill(7).subarray(8, 40),
      expiresAt: new Date("9999-12-31T23:59:59.997Z"),
      ratePerMinute: 1_000_000,
      signingSecret: "f".repeat(64),
      visitorRatePerMinute: 1_000_000,
      tokensPerDay: 1e12,
      origins: ["https://shop.example", "http://127.0.0.1:8080"],
      anonymous: true,
    });
    const { keys, ...fields } = newChatbotFields({
      name: `${fresh("chatbot")} ${"😀".repeat(200)}`,
      keys: [key],
      description: "é".repeat(100_000),
      settings: {
        helloMessage: "😀".repeat(50_000),
        moderationErrorMessage: `x${"😀".repeat(50_000)}`,
        instructions: 'Be "brief"\n',
        model: "2024.10",
        moderation: "words",
        knowledge: "007",
        retentionDays: 36_500,
      },
    });
    const chatbot = yield* registry.create({ ...fields, keys }, actor);
    yield* same("the chatbot", chatbot, { id: chatbot.id, ...fields });
    yield* same("the listed chatbot", (yield* findRegistered(chatbot.id))?.chatbot, chatbot);
    const { createdAt: _, ...listed } = (yield* findRegisteredKey(chatbot.id, key.id))!;
    yield* same("the listed key", listed, { ...key, revokedAt: null, lastUsedAt: null });
    const { expiresInMillis, nowMillis: __, ...grant } = (yield* directory.find(key.id))!;
    const { expiresAt, id: ___, name: ____, ...granted } = key;
    yield* same("what the key grants", grant, { ...granted, chatbot });
    const late = expiresInMillis! + (yield* registry.now).getTime() - expiresAt!.getTime();
    yield* same("how long it is valid", Math.abs(late) < 60_000, true);
  }),

  check("creating a chatbot with many keys is all or nothing", function* () {
    const { registry } = yield* services;
    for (let steps = 0; steps < 6; steps++) {
      const fields = newChatbotFields({ keys: Array.from({ length: 120 }, () => newKey()) });
      const creation = yield* Effect.forkChild(registry.create(fields, actor));
      for (let step = 0; step < steps; step++) yield* Effect.yieldNow;
      yield* Fiber.interrupt(creation);
      const newChatbot = (yield* registry.list).find(({ chatbot }) => chatbot.name === fields.name);
      const length = newChatbot?.keys.length ?? 0;
      yield* same("an interrupted creation", length === 0 ? newChatbot : length, newChatbot && 120);
      if (newChatbot !== undefined) continue;
      const twice = { ...fields, keys: [...fields.keys, fields.keys[0]!] };
      const keyTaken = new Errors.KeyTaken({ keyId: fields.keys[0]!.id });
      yield* failsWith("a key given twice", keyTaken, registry.create(twice, actor));
      const { id } = yield* registry.create(fields, actor);
      yield* same("its keys", (yield* findRegistered(id))?.keys.length, 120);
    }
  }),

  check("concurrent changes to different fields all take effect, each logged once", function* () {
    const { other, registry } = yield* services;
    const key = newKey();
    const { id, settings } = yield* newOne({ keys: [key] });
    const newSettings = {
      helloMessage: "Hi",
      instructions: "Be kind",
      model: "m",
      retentionDays: 7,
    };
    const keyChange = { name: "named", scopes: ["write"], expiresAt: expiry } as const;
    const all = [...Object.entries(newSettings), ...Object.entries(keyChange)];
    yield* atOnce(2 * all.length, (n): Effect.Effect<unknown, unknown> => {
      const instance = n % 2 === 0 ? registry : other;
      const [field, value] = all[n % all.length]!;
      return field in newSettings
        ? instance.change(id, { settings: { [field]: value } }, actor)
        : instance.changeKey(id, key.id, { [field]: value }, actor);
    });
    const { chatbot } = (yield* findRegistered(id))!;
    yield* same("the settings", chatbot.settings, { ...settings, ...newSettings });
    const { createdAt: _, ...changedKey } = (yield* findRegisteredKey(id, key.id))!;
    const expectedKey = { ...key, ...keyChange, revokedAt: null, lastUsedAt: null };
    yield* same("the key", changedKey, expectedKey);
    const lines = [
      ...Object.keys(newSettings).map((field) => `${actor} change ${field}`),
      ...Object.keys(keyChange).map((field) => `${actor} change-key ${key.id}: ${field}`),
    ];
    yield* same("the audit log", (yield* auditOf(id)).slice(2).toSorted(), lines.toSorted());
  }),

  check("a key that one process adds or revokes while another does is so once", function* () {
    const { directory, other, registry } = yield* services;
    const { id } = yield* newOne();
    for (let round = 0; round < 4; round++) {
      const key = newKey();
      const order = round % 2 === 0 ? [registry, other] : [other, registry];
      const additions = yield* atOnce(2, (n) => tagOf(order[n]!.addKey(id, key, actor)));
      yield* same("one addition", additions.toSorted(), ["KeyTaken", "success"]);
      const use = directory.recordUse([key.id]);
      yield* atOnce(2, (n) => (n === round % 2 ? use : other.revokeKey(id, key.id, actor)));
      yield* same("a revoked key", yield* directory.find(key.id), null);
    }
  }),
];
