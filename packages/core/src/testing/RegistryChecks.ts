/**
 * What random comparison does not notice about the registry: concurrent changes, and what a caller does with returned
 * rows.
 */
import { Effect } from "effect";
import { ChatbotRegistry } from "../ports/ChatbotRegistry.ts";
import type { StorePorts } from "../ports/Store.ts";
import { defaultEntryQuery } from "../model/ListQuery.ts";
import { check, same, type Check } from "./Check.ts";
import {
  actor,
  append,
  atOnce,
  auditOf,
  create,
  entry,
  exportAll,
  findRegistered,
  storedChats,
  history,
  instances,
  keyOf,
  list,
  newChatbot,
  newChatbotFields,
  newKey,
  takeTurn,
  usage,
} from "./Fixtures.ts";
import type { StoreUnderTest } from "./StoreUnderTest.ts";

/** A digest of the userRef `u`, as `Administration.person` makes them. */
const digestOfU =
  "sha256:00000000000000000000000000000001:f227208108233bb84d87235e7ee321ce1f17d06c4ed405d5f22e74220d2986b8";

const expiry = new Date("2032-01-01T00:00:00Z");

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
    const { id: chatId } = yield* create(id, { name: "n", userRef: "u", helloMessage: "Hello" });
    const newEntry = entry("q", { usage: { ...usage } });
    const turn = yield* takeTurn(id, chatId, keyOf("key"));
    yield* append(turn, newEntry);
    const calls: ReadonlyArray<Effect.Effect<unknown, unknown, StorePorts>> = [
      Effect.succeed([fields, chatbot, newEntry]),
      create(id),
      first.turns.take(id, chatId, keyOf("key")),
      first.turns.take(id, null, null),
      list(id),
      history(id, chatId),
      exportAll(id),
      first.registry.list,
      first.registry.audit(3),
      first.directory.find(keyId),
      first.registry.change(id, { description: "d" }, actor),
      first.turns.earlier(turn, Number.MAX_SAFE_INTEGER),
    ];
    const contents = Effect.gen(function* () {
      const { items } = yield* second.chats.listEntries(id, chatId, { ...defaultEntryQuery });
      const registered = (yield* second.registry.list).find((one) => one.keys[0]?.id === keyId);
      const log = (yield* auditOf(id)).filter((line) => !line.includes("export"));
      return structuredClone({
        stored: (yield* storedChats(id)).slice(0, 1),
        items,
        registered,
        log,
      });
    });
    yield* first.registry.change(id, { description: "d" }, actor);
    const before = yield* contents;
    for (const [n, call] of calls.entries()) {
      overwrite(yield* call);
      yield* same(`the contents after call ${n}`, yield* contents, before);
    }
  }),

  check("what expires is what the chatbots and keys say", function* () {
    const registry = yield* ChatbotRegistry;
    const now = (yield* registry.now).getTime();
    const [revoked, ...keys] = [1, 0, -1, 3, 2].map((hours) =>
      newKey({ expiresAt: new Date(now + hours * 3_600_000) }),
    );
    const fields = newChatbotFields({ keys: [revoked!, ...keys, newKey()] });
    const { id } = yield* registry.create(fields, actor);
    yield* registry.change(id, { settings: { retentionDays: 7 } }, actor);
    yield* newChatbot;
    yield* registry.revokeKey(id, revoked!.id, actor);
    const all = yield* registry.list;
    const dates = all
      .flatMap(({ keys }) => keys)
      .flatMap(({ expiresAt, revokedAt }) => (revokedAt === null ? (expiresAt ?? []) : []));
    yield* same("what expires", yield* registry.expiries, {
      chatbots: all.flatMap(({ chatbot }) =>
        chatbot.settings.retentionDays === null ? [] : chatbot.id,
      ),
      nextKey: new Date(Math.min(...dates.map(Number).filter((date) => date > now))),
    });
  }),

  check("the audit log has all entries about a person, whatever the limit", function* () {
    const id = yield* newChatbot;
    const registry = yield* ChatbotRegistry;
    const details = ["c", "b", "a"].map((name) => `${name} ${digestOfU}`);
    for (const detail of details.toReversed()) yield* registry.record(id, "read", detail, actor);
    yield* registry.record(id, "read", "entries", actor);
    const about = (yield* registry.audit(1, "u")).flatMap(({ chatbot, detail }) =>
      chatbot === id && detail.includes(digestOfU) ? detail : [],
    );
    yield* same("the entries about the person", about, details);
  }),

  check("concurrent changes to different fields all take effect, each logged once", function* () {
    const both = yield* instances;
    const key = newKey();
    const fields = newChatbotFields({ keys: [key] });
    const { id, settings } = yield* both[0].registry.create(fields, actor);
    const newSettings = {
      helloMessage: "Hi",
      instructions: "Be kind",
      model: "m",
      retentionDays: 7,
    };
    const keyChange = { name: "named", scopes: ["write"], expiresAt: expiry } as const;
    const all = [...Object.entries(newSettings), ...Object.entries(keyChange)];
    yield* atOnce(2 * all.length, (n): Effect.Effect<unknown, unknown> => {
      const instance = both[n % 2]!.registry;
      const [field, value] = all[n % all.length]!;
      return field in newSettings
        ? instance.change(id, { settings: { [field]: value } }, actor)
        : instance.changeKey(id, key.id, { [field]: value }, actor);
    });
    const { chatbot } = (yield* findRegistered(id))!;
    yield* same("the settings", chatbot.settings, { ...settings, ...newSettings });
    const { createdAt: _, ...changedKey } = (yield* findRegistered(id))!.keys[0]!;
    const expectedKey = { ...key, ...keyChange, revokedAt: null, lastUsedAt: null };
    yield* same("the key", changedKey, expectedKey);
    const lines = [
      ...Object.keys(newSettings).map((field) => `${actor} change ${field}`),
      ...Object.keys(keyChange).map((field) => `${actor} change-key ${key.id}: ${field}`),
    ];
    yield* same("the audit log", (yield* auditOf(id)).slice(2).toSorted(), lines.toSorted());
  }),
];
