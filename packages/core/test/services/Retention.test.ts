import { assert, it } from "@effect/vitest";
import {
  type ChatbotId,
  type ChatId,
  defaultSettings,
  layerRetention,
  defaultChatQuery,
  plainKey,
} from "@parley/core";
import {
  ChatArchive,
  ChatbotRegistry,
  ChatStore,
  StorageUnavailable,
  TurnStore,
} from "@parley/core/ports";
import { layerMemory } from "@parley/store-memory";
import { Cause, Effect, Layer, Logger, Metric } from "effect";
import { TestClock } from "effect/testing";

const entry = { question: "q", answer: "a", moderation: "none", flagged: false, usage: null };

/** Creates a chatbot with two chats whose creation times are equal. */
const make = Effect.fnUntraced(function* (name: string, retentionDays: number | null) {
  const registry = yield* ChatbotRegistry;
  const store = yield* ChatStore;
  const { id } = yield* registry.create(
    {
      workspaceName: "Acme",
      name,
      description: "",
      settings: { ...defaultSettings, retentionDays },
      keys: [],
    },
    "test",
  );
  const chat = { name: null, userRef: null, helloMessage: null };
  const idle = yield* store.createChat(id, chat, null);
  const used = yield* store.createChat(id, chat, null);
  return { id, idle: idle.chat.id, used: used.chat.id };
});

const chatsOf = ({ id }: { readonly id: ChatbotId }) =>
  ChatStore.use((store) =>
    Effect.map(store.listChats(id, defaultChatQuery), ({ items }) => items.map((chat) => chat.id)),
  );

const use = Effect.fnUntraced(function* (chatbot: ChatbotId, chat: ChatId) {
  const turns = yield* TurnStore;
  const takeResult = yield* turns.take(chatbot, chat, null);
  if (takeResult._tag !== "TurnTaken") return assert.fail("the turn is free");
  yield* turns.append(takeResult.turn, entry);
});

/** Longer than the jittered pause between two runs, but shorter than two such pauses. */
const anHour = TestClock.adjust("75 minutes");

/** Starts retention with these methods of its ports replaced, and returns its log lines. */
const startRetention = Effect.fnUntraced(function* (ports: {
  readonly archive?: Partial<ChatArchive["Service"]>;
  readonly registry?: Partial<ChatbotRegistry["Service"]>;
}) {
  const logs: Array<string> = [];
  const logger = Logger.make(({ cause, logLevel, message }) => {
    logs.push(`${logLevel}: ${String(message)} ${Cause.pretty(cause)}`);
  });
  const archive = { ...(yield* ChatArchive), ...ports.archive };
  const registry = { ...(yield* ChatbotRegistry), ...ports.registry };
  yield* Layer.build(layerRetention).pipe(
    Effect.provideService(ChatArchive, archive),
    Effect.provideService(ChatbotRegistry, registry),
    Effect.provide(Logger.layer([logger])),
  );
  return logs;
});

it.effect(
  "a chat is erased once it has had no entry for its chatbot's `retentionDays`, and no other chat is",
  () =>
    Effect.gen(function* () {
      const kept = yield* make("kept", null);
      const short = yield* make("short", 2);
      yield* startRetention({});
      yield* TestClock.adjust("36 hours");
      yield* use(short.id, short.used);
      yield* TestClock.adjust("12 hours");
      assert.deepStrictEqual(yield* chatsOf(short), [short.used, short.idle]);
      yield* anHour;
      assert.deepStrictEqual(yield* chatsOf(short), [short.used]);
      yield* TestClock.adjust("2 days");
      assert.deepStrictEqual(yield* chatsOf(short), []);
      assert.deepStrictEqual(yield* chatsOf(kept), [kept.used, kept.idle]);
      const [line] = yield* ChatbotRegistry.use((registry) => registry.audit(1));
      assert.deepInclude(line, { actor: "retention", action: "erase", chatbot: short.id });
    }).pipe(Effect.scoped, Effect.provide(layerMemory)),
);

it.effect(
  "a run follows changes and deletions that operators make while it erases other chats",
  () =>
    Effect.gen(function* () {
      const { erase } = yield* ChatArchive;
      const registry = yield* ChatbotRegistry;
      const first = yield* make("first", 2);
      const off = yield* make("off", 2);
      const longer = yield* make("longer", 2);
      const gone = yield* make("gone", 2);
      yield* TestClock.adjust("3 days");
      const logs = yield* startRetention({
        archive: {
          erase: (chatbot, ...rest) =>
            Effect.gen(function* () {
              if (chatbot === first.id) {
                yield* registry.change(off.id, { settings: { retentionDays: null } }, "test");
                yield* registry.change(longer.id, { settings: { retentionDays: 30 } }, "test");
                yield* registry.delete(gone.id, "test");
              }
              return yield* erase(chatbot, ...rest);
            }).pipe(Effect.orDie),
        },
      });
      yield* TestClock.adjust("61 seconds");
      assert.deepStrictEqual(yield* chatsOf(first), []);
      assert.deepStrictEqual(yield* chatsOf(off), [off.used, off.idle]);
      assert.deepStrictEqual(yield* chatsOf(longer), [longer.used, longer.idle]);
      assert.deepStrictEqual(logs, []);
    }).pipe(Effect.scoped, Effect.provide(layerMemory)),
);

it.effect("a failed erasure is logged, and the other chatbots' chats are still erased", () =>
  Effect.gen(function* () {
    const { erase } = yield* ChatArchive;
    const failing = yield* make("failing", 2);
    const broken = yield* make("broken", 2);
    const other = yield* make("other", 2);
    yield* TestClock.adjust("3 days");
    const logs = yield* startRetention({
      archive: {
        erase: (chatbot, which, actor) =>
          chatbot === failing.id
            ? Effect.fail(new StorageUnavailable({ cause: "gone" }))
            : chatbot === broken.id
              ? Effect.die(new Error("broken"))
              : erase(chatbot, which, actor),
      },
    });
    yield* TestClock.adjust("61 seconds");
    assert.deepStrictEqual(yield* chatsOf(other), []);
    const errors = logs.filter((line) => line.startsWith("Error"));
    assert.strictEqual(errors.length, 2);
    assert.include(errors[0], `of chatbot ${failing.id} could not be erased`);
    assert.include(errors[1], `of chatbot ${broken.id} could not be erased`);
    assert.include(errors[1], "Error: broken");
  }).pipe(Effect.scoped, Effect.provide(layerMemory)),
);

it.effect(
  "metrics show the time since the last successful run and the time until the next key expires",
  () =>
    Effect.gen(function* () {
      const registry = yield* ChatbotRegistry;
      const { erase } = yield* ChatArchive;
      const { id } = yield* make("short", 2);
      const key = (name: string, expiresAt: Date | null) =>
        registry.addKey(
          id,
          {
            id: name,
            hash: new Uint8Array(32),
            scopes: ["read"],
            ...plainKey,
            name,
            expiresAt,
          },
          "test",
        );
      const gauges = Effect.map(Metric.snapshot, (metrics) =>
        Object.fromEntries(
          metrics.map(({ id, state }) => [id, Math.round((state as { value: number }).value)]),
        ),
      );
      yield* key("eternal", null);
      let isFailing = true;
      yield* startRetention({
        archive: {
          erase: (...erasure) =>
            isFailing ? Effect.fail(new StorageUnavailable({ cause: "gone" })) : erase(...erasure),
        },
      });
      const hour = 3600;
      assert.deepStrictEqual(yield* gauges, {
        "parley.retention.age": 0,
        "parley.key.expiry": Infinity,
      });
      yield* key("later", new Date(9 * hour * 1000));
      yield* key("soon", new Date(2 * hour * 1000));
      yield* key("revoked", new Date(hour * 1000));
      yield* registry.revokeKey(id, "revoked", "test");
      yield* TestClock.adjust("1 second");
      assert.strictEqual((yield* gauges)["parley.key.expiry"], 2 * hour - 1);
      // A key that is created later is noticed within a minute.
      yield* key("sooner", new Date(1.5 * hour * 1000));
      yield* TestClock.adjust("61 seconds");
      assert.deepStrictEqual(yield* gauges, {
        "parley.retention.age": 62,
        "parley.key.expiry": 1.5 * hour - 62,
        "parley.chatbot.rows": 2,
        "parley.chatbot.size": 300,
      });
      isFailing = false;
      yield* TestClock.adjust("119 minutes");
      const { "parley.key.expiry": expiry, "parley.retention.age": age } = yield* gauges;
      assert.isBelow(age!, 75 * 60);
      assert.strictEqual(expiry, 0, "until the next minute, for the key that has just expired");
      yield* TestClock.adjust("1 minute");
      assert.strictEqual((yield* gauges)["parley.key.expiry"], 7 * hour - 62);
    }).pipe(
      Effect.scoped,
      Effect.provide(layerMemory),
      Effect.provideService(Metric.MetricRegistry, new Map()),
    ),
);

it.effect(
  "metrics show the sizes of the ten biggest chatbots, measured every ten minutes, and 0 for one that is deleted",
  () =>
    Effect.gen(function* () {
      const registry = yield* ChatbotRegistry;
      const chatbots = yield* Effect.forEach(
        Array.from({ length: 12 }, (_, n) => n),
        (n) => make(String(n), null),
      );
      for (const { id, used } of chatbots.slice(2)) yield* use(id, used);
      const rows = Effect.map(Metric.snapshot, (metrics) => {
        const ofRows = metrics.filter(({ id }) => id === "parley.chatbot.rows");
        return ofRows
          .map(({ attributes, state }) => [
            Number(attributes!["chatbot"]),
            (state as { value: number }).value,
          ])
          .toSorted(([a], [b]) => a! - b!);
      });
      yield* startRetention({});
      yield* TestClock.adjust("1 minute");
      const biggest = chatbots.slice(2).map(({ id }) => [id, 3]);
      assert.deepStrictEqual(yield* rows, biggest);
      yield* use(chatbots[0]!.id, chatbots[0]!.idle);
      yield* use(chatbots[0]!.id, chatbots[0]!.idle);
      yield* registry.delete(chatbots[2]!.id, "test");
      yield* TestClock.adjust("9 minutes");
      assert.deepStrictEqual(yield* rows, biggest);
      yield* TestClock.adjust("1 minute");
      assert.deepStrictEqual(yield* rows, [
        [chatbots[0]!.id, 4],
        [chatbots[2]!.id, 0],
        ...biggest.slice(1),
      ]);
    }).pipe(
      Effect.scoped,
      Effect.provide(layerMemory),
      Effect.provideService(Metric.MetricRegistry, new Map()),
    ),
);
