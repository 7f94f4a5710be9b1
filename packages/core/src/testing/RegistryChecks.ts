/**
 * Checks that a store keeps the promises of `ChatbotRegistry` and `ChatbotDirectory`, which share their data.
 */
import { Effect, Fiber, Struct } from "effect";
import type { ChatArchive } from "../ports/ChatArchive.ts";
import { ChatbotDirectory } from "../ports/ChatbotDirectory.ts";
import { ChatbotRegistry, type ChatbotChange, type KeyChange } from "../ports/ChatbotRegistry.ts";
import type { RegisteredKey } from "../model/ApiKey.ts";
import type { ChatStore } from "../ports/ChatStore.ts";
import * as Errors from "../model/Errors.ts";
import { ChatbotId } from "../model/Ids.ts";
import { TurnStore } from "../ports/TurnStore.ts";
import { check, failsWith, same, type Check } from "./Check.ts";
import {
  actor,
  append,
  atOnce,
  auditOf,
  awkwardTexts,
  conversation,
  create,
  newChatbotFields,
  entry,
  erase,
  findRegistered,
  findRegisteredKey,
  history,
  keyOf,
  list,
  newKey,
  pass,
  tagOf,
  takeTurn,
} from "./Fixtures.ts";
import { fresh, StoreUnderTest } from "./StoreUnderTest.ts";

const expiry = new Date("2032-01-01T00:00:00Z");

/** The registries of both instances, and the directory of the first instance. */
const services = Effect.gen(function* () {
  const { second } = yield* StoreUnderTest;
  const registry = yield* ChatbotRegistry;
  const directory = yield* ChatbotDirectory;
  return { registry, other: second.registry, directory };
});

const newOne = (more: Parameters<typeof newChatbotFields>[0] = {}) =>
  ChatbotRegistry.use((registry) => registry.create(newChatbotFields(more), actor));

/** Values for the fields that most keys do not set, except `name` and `expiresAt`. */
const rare = {
  ratePerMinute: 9,
  signingSecret: "f".repeat(64),
  visitorRatePerMinute: 1_000_000,
  tokensPerDay: 1e12,
  origins: ["https://shop.example", "http://127.0.0.1:8080"],
  anonymous: true,
};

/** Returns what a listed key grants, without the chatbot and the expiry. */
const grantedBy = (key: RegisteredKey) =>
  Struct.omit(key, ["id", "name", "expiresAt", "createdAt", "revokedAt", "lastUsedAt"]);

/**
 * Looks up the key in the directory, and checks the store's clock. Returns the chatbot, how long the key remains valid,
 * and the other fields of the grant.
 */
const lookUpKey = Effect.fnUntraced(function* (id: string) {
  const { directory, registry } = yield* services;
  const { chatbot, expiresInMillis, nowMillis, ...grant } = (yield* directory.find(id))!;
  const now = (yield* registry.now).getTime();
  yield* same(
    "the store's clock",
    nowMillis === undefined || Math.abs(now - nowMillis) < 60_000,
    true,
  );
  return { chatbot, expiresInMillis, grant };
});

/** Checks whether the time is about this many milliseconds after the current time of the store's clock. */
const isIn = Effect.fnUntraced(function* (time: Date | null | undefined, millis: number) {
  const { now } = yield* ChatbotRegistry;
  return Math.abs(time!.getTime() - (yield* now).getTime() - millis) < 60_000;
});

/** Runs both effects concurrently and returns which succeeded. In odd rounds, the second effect starts first. */
const bothAtOnce = (round: number, both: ReadonlyArray<Effect.Effect<unknown, unknown>>) =>
  Effect.gen(function* () {
    const order = round % 2 === 0 ? both : both.toReversed();
    const successes = yield* Effect.forEach(order, (effect) => Effect.isSuccess(effect), {
      concurrency: 2,
    });
    return round % 2 === 0 ? successes : successes.toReversed();
  });

/** The checks for `ChatbotRegistry` and `ChatbotDirectory`, some of which run while other calls write. */
export const registryChecks: ReadonlyArray<
  Check<ChatbotRegistry | ChatbotDirectory | ChatStore | TurnStore | ChatArchive | StoreUnderTest>
> = [
  check("a chatbot is stored as declared, and its keys give access to it", function* () {
    const { directory, registry } = yield* services;
    const keys = [
      newKey({ id: fresh("a") }),
      newKey({
        id: fresh("b"),
        name: "n".repeat(300),
        expiresAt: new Date("9999-12-31T23:59:59.997Z"),
        ...rare,
        ratePerMinute: 1_000_000,
      }),
      // A hash may be a view of a larger buffer, and a key may have expired long ago.
      newKey({
        id: fresh("c"),
        hash: new Uint8Array(64).fill(7).subarray(8, 40),
        expiresAt: new Date(0),
      }),
    ];
    const fields = newChatbotFields({
      name: `${fresh("chatbot")} ${"😀".repeat(200)}`,
      keys,
      // The longest description allowed, which has more bytes than code points.
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
    const chatbot = yield* registry.create(fields, actor);
    const { keys: _, ...rest } = fields;
    yield* same("the chatbot", chatbot, { id: chatbot.id, ...rest });
    yield* same("a positive id", Number.isSafeInteger(chatbot.id) && chatbot.id > 0, true);
    const registeredChatbot = yield* findRegistered(chatbot.id);
    yield* same("the listed chatbot", registeredChatbot?.chatbot, chatbot);
    yield* same("the same on its own", yield* registry.get(chatbot.id), registeredChatbot);
    for (const declaredKey of keys) {
      const { expiresAt, id } = declaredKey;
      const { createdAt, ...key } = registeredChatbot!.keys.find(
        (listedKey) => listedKey.id === id,
      )!;
      yield* same("the listed key", key, { ...declaredKey, revokedAt: null, lastUsedAt: null });
      yield* same("its creation time", createdAt instanceof Date, true);
      const lookUp = yield* lookUpKey(id);
      yield* same("its chatbot", lookUp.chatbot, chatbot);
      yield* same("the key's grant", lookUp.grant, grantedBy({ ...key, createdAt }));
      const isRight =
        expiresAt === null
          ? lookUp.expiresInMillis === null
          : yield* isIn(expiresAt, lookUp.expiresInMillis!);
      yield* same("how long it stays valid", isRight, true);
    }
    yield* same("the number of keys", registeredChatbot!.keys.length, keys.length);
    yield* same("an unknown key", yield* directory.find(fresh("key")), null);
    yield* same("the audit log", yield* auditOf(chatbot.id), [
      `${actor} create ${fields.name}`,
      ...keys.map(({ id }) => `${actor} add-key ${id}`),
    ]);
  }),

  check("texts of chatbots, keys and actors are stored unchanged", function* () {
    const { registry } = yield* services;
    const { id } = yield* newOne();
    const texts = awkwardTexts.filter((text) => text.trim() !== "");
    for (const [n, text] of texts.entries()) {
      const key = newKey({ name: text });
      yield* registry.addKey(id, key, text);
      yield* same("the key's name", (yield* findRegisteredKey(id, key.id))?.name, text);
      const change = { description: text, settings: { model: text, instructions: `${n}` } };
      const changedChatbot = yield* registry.change(id, change, text);
      yield* same("the listed chatbot", (yield* findRegistered(id))?.chatbot, changedChatbot);
      yield* same(
        "its texts",
        [changedChatbot.description, changedChatbot.settings.model],
        [text, text],
      );
    }
    const newest = yield* registry.audit(2 * texts.length);
    const actors = newest.map((line) => line.actor);
    const expected = texts.toReversed().flatMap((text) => [text, text]);
    yield* same("the actors, newest first", actors, expected);
    yield* same("zero entries", yield* registry.audit(0), []);
    const all = yield* registry.audit(2 ** 31 - 1);
    yield* same("the newest of all", all[0], newest[0]);
  }),

  check("no two chatbots in a workspace have the same name", function* () {
    const { other, registry } = yield* services;
    const fields = newChatbotFields({ workspaceName: fresh("é"), name: "Chatbot" });
    const { name, workspaceName } = fields;
    const tags = yield* atOnce(4, (n) =>
      tagOf((n % 2 === 0 ? registry : other).create(fields, actor)),
    );
    const expected = ["ChatbotTaken", "ChatbotTaken", "ChatbotTaken", "success"];
    yield* same("the outcomes", tags.toSorted(), expected);
    // Names are compared code point by code point.
    const alike = [
      ...["chatbot", "Chatbot ", "Chatb\u00f6t"].map((name) => newOne({ workspaceName, name })),
      ...[`${workspaceName} `, workspaceName.normalize("NFD"), workspaceName.toUpperCase()].map(
        (workspaceName) => newOne({ workspaceName, name }),
      ),
    ];
    const [first, , , elsewhere] = yield* Effect.all(alike);
    const nameTaken = new Errors.ChatbotTaken({ workspaceName, name });
    const change = { name, description: "another" };
    yield* failsWith("a taken name", nameTaken, registry.change(first!.id, change, actor));
    yield* failsWith(
      "its workspace",
      nameTaken,
      registry.change(elsewhere!.id, { workspaceName }, actor),
    );
    for (const chatbot of [first!, elsewhere!]) {
      yield* same("unchanged", (yield* findRegistered(chatbot.id))?.chatbot, chatbot);
      const line = `${actor} create ${chatbot.name}`;
      yield* same("its audit log", yield* auditOf(chatbot.id), [line]);
    }
    const away = { workspaceName: fresh("W"), name };
    const result = yield* registry.change(first!.id, away, actor);
    yield* same("both together", result, { ...first, ...away });
  }),

  check(
    "a change sets the fields that it names, and the audit log names those that differ",
    function* () {
      const { directory, other, registry } = yield* services;
      const key = newKey();
      let chatbot = yield* newOne({ keys: [key] });
      const { id, name } = chatbot;
      const settings = {
        helloMessage: null,
        instructions: "Be kind",
        moderationErrorMessage: "No",
      };
      const changes: ReadonlyArray<readonly [ChatbotChange, ChatbotRegistry["Service"]]> = [
        [{ description: "another", settings }, registry],
        [{ description: "another", settings }, other],
        [{}, registry],
        [{ name: fresh("chatbot"), workspaceName: fresh("W") }, registry],
        [{ name: fresh("chatbot"), settings: { model: "m" } }, other],
        [{ settings: { helloMessage: "" } }, registry],
        [{}, other],
      ];
      for (const [n, [change, instance]] of changes.entries()) {
        const changedChatbot = yield* instance.change(id, change, `actor ${n}`);
        chatbot = { ...chatbot, ...change, settings: { ...chatbot.settings, ...change.settings } };
        yield* same("the chatbot", changedChatbot, chatbot);
        yield* same("the listed chatbot", (yield* findRegistered(id))?.chatbot, chatbot);
        yield* same("the key's chatbot", (yield* directory.find(key.id))?.chatbot, chatbot);
      }
      yield* same("the audit log", yield* auditOf(id), [
        `${actor} create ${name}`,
        `${actor} add-key ${key.id}`,
        "actor 0 change description, helloMessage, instructions, moderationErrorMessage",
        "actor 3 change name, workspaceName",
        "actor 4 change model, name",
        "actor 5 change helloMessage",
      ]);
      const unknown = ChatbotId.make(id + 1_000_000);
      const chatbotNotFound = new Errors.ChatbotNotFound({ chatbot: unknown });
      yield* failsWith(
        "unknown chatbot",
        chatbotNotFound,
        registry.change(unknown, { name: "n" }, actor),
      );
    },
  ),

  check("a key is added, changed, and revoked for good", function* () {
    const { directory, other, registry } = yield* services;
    const [key, otherKey, last] = [
      newKey({ id: fresh("b") }),
      newKey({ id: fresh("c") }),
      newKey({ id: fresh("a") }),
    ];
    const { id } = yield* newOne({ keys: [otherKey] });
    const { id: another } = yield* newOne();
    yield* pass(10);
    yield* registry.addKey(id, key, actor);
    yield* pass(10);
    yield* same("the key before its addition", yield* directory.find(last.id), null);
    yield* other.addKey(id, last, actor);
    yield* same("the added key's chatbot", (yield* directory.find(last.id))?.chatbot.id, id);
    const keyIds = (yield* findRegistered(id))?.keys.map(({ id }) => id);
    yield* same("the keys, oldest first", keyIds, [otherKey.id, key.id, last.id]);
    const changes: ReadonlyArray<KeyChange> = [
      { scopes: ["write"], expiresAt: expiry },
      { scopes: ["write"] },
      { name: "named", ratePerMinute: 60 },
      { expiresAt: null, name: null },
      { ratePerMinute: null },
      rare,
      { signingSecret: null, tokensPerDay: null, origins: [], anonymous: false },
    ];
    let expected = (yield* findRegisteredKey(id, key.id))!;
    for (const change of changes) {
      yield* registry.changeKey(id, key.id, change, "another");
      expected = { ...expected, ...change };
      yield* same("the changed key", yield* findRegisteredKey(id, key.id), expected);
      const { expiresInMillis, grant } = yield* lookUpKey(key.id);
      yield* same("the key's grant", grant, grantedBy(expected));
      yield* same("its expiry", expiresInMillis === null, expected.expiresAt === null);
    }
    const notFound = new Errors.KeyNotFound({ keyId: key.id });
    const unknown = ChatbotId.make(id + 1_000_000);
    const isNotFound = Effect.fnUntraced(function* (chatbot: ChatbotId) {
      const change = registry.changeKey(chatbot, key.id, { name: "x" }, actor);
      yield* failsWith("a change", notFound, change);
      yield* failsWith("a revocation", notFound, registry.revokeKey(chatbot, key.id, actor));
    });
    yield* isNotFound(another);
    yield* isNotFound(unknown);
    yield* other.revokeKey(id, key.id, "another");
    yield* isNotFound(id);
    const keyTaken = new Errors.KeyTaken({ keyId: key.id });
    for (const chatbot of [id, another]) {
      yield* failsWith("an addition", keyTaken, registry.addKey(chatbot, key, actor));
    }
    yield* same("the revoked key", yield* directory.find(key.id), null);
    const revokedKey = yield* findRegisteredKey(id, key.id);
    yield* same("its revocation time", revokedKey?.revokedAt instanceof Date, true);
    yield* same("the rest", { ...revokedKey, revokedAt: null }, expected);
    yield* same("the other key", (yield* directory.find(otherKey.id))?.chatbot.id, id);
    yield* same("the audit log", (yield* auditOf(id)).slice(2), [
      `${actor} add-key ${key.id}`,
      `${actor} add-key ${last.id}`,
      `another change-key ${key.id}: expiresAt, scopes`,
      `another change-key ${key.id}: name, ratePerMinute`,
      `another change-key ${key.id}: expiresAt, name`,
      `another change-key ${key.id}: ratePerMinute`,
      `another change-key ${key.id}: ${Object.keys(rare).toSorted().join(", ")}`,
      `another change-key ${key.id}: anonymous, origins, signingSecret, tokensPerDay`,
      `another revoke-key ${key.id}`,
    ]);
    const chatbotNotFound = new Errors.ChatbotNotFound({ chatbot: unknown });
    yield* failsWith("unknown chatbot", chatbotNotFound, registry.addKey(unknown, otherKey, actor));
  }),

  check("creating a chatbot checks its name before its keys, and is all or nothing", function* () {
    const { registry } = yield* services;
    const first = newChatbotFields({ keys: [newKey()] });
    yield* registry.create(first, actor);
    const { name, workspaceName } = first;
    const nameTaken = new Errors.ChatbotTaken({ workspaceName, name });
    const keys = Array.from({ length: 120 }, () => newKey());
    for (const key of [first.keys[0]!, { ...keys[0]!, name: "twice" }]) {
      const fields = newChatbotFields({ keys: [...keys, key] });
      const keyTaken = new Errors.KeyTaken({ keyId: key.id });
      yield* failsWith("a taken key", keyTaken, registry.create(fields, actor));
      const both = { ...fields, name, workspaceName };
      yield* failsWith("a taken name and key", nameTaken, registry.create(both, actor));
    }
    for (let steps = 0; steps < 6; steps++) {
      const fields = newChatbotFields({ keys: keys.map((key) => ({ ...key, id: fresh("key") })) });
      const creation = yield* Effect.forkChild(registry.create(fields, actor));
      for (let step = 0; step < steps; step++) yield* Effect.yieldNow;
      yield* Fiber.interrupt(creation);
      const newChatbot = (yield* registry.list).find(({ chatbot }) => chatbot.name === fields.name);
      const length = newChatbot?.keys.length ?? 0;
      yield* same("an interrupted creation", length === 0 ? newChatbot : length, newChatbot && 120);
    }
    const { id } = yield* newOne({ keys });
    yield* same("its keys", (yield* findRegistered(id))?.keys.length, 120);
  }),

  check("the last use of a key is stored with the key, and not in the audit log", function* () {
    const { directory, registry } = yield* services;
    const keys = Array.from({ length: 1_003 }, () => newKey());
    const [unusedId, revokedId, ...usedIds] = keys.map(({ id }) => id);
    const { id } = yield* newOne({ keys });
    yield* registry.revokeKey(id, revokedId!, actor);
    const before = yield* auditOf(id);
    yield* directory.recordUse([]);
    yield* directory.recordUse([revokedId!, fresh("key"), ...usedIds]);
    const lastUsedAt = (yield* findRegisteredKey(id, usedIds[0]!))?.lastUsedAt;
    yield* same("a used key", lastUsedAt instanceof Date, true);
    const registeredKeys = (yield* findRegistered(id))?.keys ?? [];
    const unusedIds = registeredKeys.filter((key) => key.lastUsedAt === null).map((key) => key.id);
    yield* same(
      "the unused keys",
      unusedIds.filter((key) => key !== revokedId),
      [unusedId],
    );
    yield* same("the number of keys", registeredKeys.length, keys.length);
    yield* same("the audit log", yield* auditOf(id), before);
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

  check(
    "a key id that two processes add at once is added once, and a revoked key stays revoked",
    function* () {
      const { directory, other, registry } = yield* services;
      const { id } = yield* newOne();
      for (let round = 0; round < 4; round++) {
        const key = newKey();
        const isAdded = yield* bothAtOnce(round, [
          registry.addKey(id, key, actor),
          other.addKey(id, key, actor),
        ]);
        yield* same("one addition", isAdded.toSorted(), [false, true]);
        const use = directory.recordUse([key.id]);
        yield* bothAtOnce(round, [use, other.revokeKey(id, key.id, actor)]);
        yield* same("a revoked key", yield* directory.find(key.id), null);
      }
    },
  ),

  check("recording a read of users' texts adds an entry to the audit log", function* () {
    const registry = yield* ChatbotRegistry;
    const { id } = yield* newOne();
    const before = yield* auditOf(id);
    yield* registry.recordRead(id, "chat 17", "ann");
    yield* same("the audit log", yield* auditOf(id), [...before, "ann read chat 17"]);
  }),

  check("a deleted chatbot leaves nothing but its entries in the audit log", function* () {
    const { directory, other, registry } = yield* services;
    const key = newKey();
    const { id, name, workspaceName } = yield* newOne({ keys: [key], workspaceName: fresh("W") });
    const otherChatbot = yield* newOne({ workspaceName });
    yield* create(otherChatbot.id);
    const { chat } = yield* conversation(id, [entry("q")]);
    yield* append(yield* takeTurn(id, null, keyOf("key")), entry("q"));
    const turn = yield* takeTurn(id, chat.id);
    const withoutChat = yield* takeTurn(id, null, keyOf("held"));
    yield* other.delete(id, "ann");
    yield* same("the chatbot", yield* findRegistered(id), undefined);
    yield* same("its key", yield* directory.find(key.id), null);
    yield* same("its chats", yield* list(id), { items: [], total: 0 });
    const chatGone = new Errors.ChatNotFound({ chatId: chat.id });
    yield* failsWith("its history", chatGone, history(id, chat.id));
    yield* failsWith("an ask in flight", chatGone, append(turn, entry("late")));
    const isRenewed = yield* TurnStore.use(({ renew }) => renew(withoutChat));
    yield* same("a renewal of a turn without a chat", isRenewed, false);
    yield* failsWith("its append", new Errors.TurnLost(), append(withoutChat, entry("late")));
    const spending = { apiKeyId: key.id, tokens: 5 };
    for (const endedTurn of [turn, withoutChat])
      yield* TurnStore.use(({ release }) => release(endedTurn, spending));
    const notFound = new Errors.ChatbotNotFound({ chatbot: id });
    yield* failsWith("a new chat", notFound, create(id));
    yield* failsWith("a known key", notFound, takeTurn(id, null, keyOf("key")));
    yield* failsWith("an erasure", notFound, erase(id, { _tag: "All" }));
    yield* failsWith("a read", notFound, registry.get(id));
    yield* failsWith("a change", notFound, registry.change(id, { name: "n" }, actor));
    yield* failsWith("a second deletion", notFound, registry.delete(id, actor));
    const lines = [`${actor} create ${name}`, `${actor} add-key ${key.id}`, `ann delete ${name}`];
    yield* same("the audit log", yield* auditOf(id), lines);
    const again = yield* newOne({ name, workspaceName, keys: [key] });
    yield* same("the id is reused", again.id === id, false);
    yield* same("no chats", yield* list(again.id), { items: [], total: 0 });
    yield* same("the other chatbot's chats", (yield* list(otherChatbot.id)).total, 1);
  }),
];
