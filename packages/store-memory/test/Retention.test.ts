import { assert, it } from "@effect/vitest";
import {
  ChatArchive,
  ChatbotRegistry,
  ChatStore,
  defaultSettings,
  layerRetention,
  newestChats,
  StorageUnavailable,
  TurnStore,
} from "@parley/core";
import { layerMemory } from "@parley/store-memory";
import { Cause, Effect, Layer, Logger } from "effect";
import { TestClock } from "effect/testing";

const entry = { question: "q", answer: "a", moderation: "none", flagged: false, usage: null };

/** A chatbot with chats that are as old as itself. */
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

const left = ({ id }: { readonly id: number }) =>
  ChatStore.use((store) =>
    Effect.map(store.listChats(id, newestChats), ({ items }) => items.map((chat) => chat.id)),
  );

const use = Effect.fnUntraced(function* (chatbot: number, chat: number) {
  const turns = yield* TurnStore;
  const taken = yield* turns.take(chatbot, chat, null);
  if (taken._tag !== "Turn") return assert.fail("the turn is free");
  yield* turns.append(taken.turn, entry);
});

/** More than the hour between two runs may last, and less than two. */
const anHour = TestClock.adjust("75 minutes");

/** Runs over these ports; gives what is logged. */
const retained = Effect.fnUntraced(function* (ports: {
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

it.effect("chats are erased after their chatbot's days without an entry, and no others", () =>
  Effect.gen(function* () {
    const kept = yield* make("kept", null);
    const short = yield* make("short", 2);
    yield* retained({});
    yield* TestClock.adjust("36 hours");
    yield* use(short.id, short.used);
    yield* TestClock.adjust("12 hours");
    assert.deepStrictEqual(yield* left(short), [short.used, short.idle]);
    yield* anHour;
    assert.deepStrictEqual(yield* left(short), [short.used]);
    yield* TestClock.adjust("2 days");
    assert.deepStrictEqual(yield* left(short), []);
    assert.deepStrictEqual(yield* left(kept), [kept.used, kept.idle]);
  }).pipe(Effect.scoped, Effect.provide(layerMemory)),
);

it.effect("the first time is a minute after the start, the next an hour later", () =>
  Effect.gen(function* () {
    const chatbot = yield* make("short", 2);
    yield* TestClock.adjust("47 hours");
    yield* use(chatbot.id, chatbot.used);
    yield* TestClock.adjust("2 hours");
    yield* retained({});
    yield* TestClock.adjust("59 seconds");
    assert.deepStrictEqual(yield* left(chatbot), [chatbot.used, chatbot.idle]);
    yield* TestClock.adjust("2 seconds");
    assert.deepStrictEqual(yield* left(chatbot), [chatbot.used]);
    yield* TestClock.adjust("46 hours");
    assert.deepStrictEqual(yield* left(chatbot), [chatbot.used]);
    yield* anHour;
    assert.deepStrictEqual(yield* left(chatbot), []);
  }).pipe(Effect.scoped, Effect.provide(layerMemory)),
);

it.effect("a retention that is ended while another chatbot's chats are long erased is ended", () =>
  Effect.gen(function* () {
    const registry = yield* ChatbotRegistry;
    const { erase } = yield* ChatArchive;
    const first = yield* make("first", 2);
    const second = yield* make("second", 2);
    yield* TestClock.adjust("3 days");
    yield* retained({
      archive: {
        erase: (chatbot, which) =>
          registry
            .change(second.id, { settings: { retentionDays: null } }, "test")
            .pipe(Effect.orDie, Effect.delay("2 seconds"), Effect.andThen(erase(chatbot, which))),
      },
    });
    yield* TestClock.adjust("2 minutes");
    assert.deepStrictEqual(yield* left(first), []);
    assert.deepStrictEqual(yield* left(second), [second.used, second.idle]);
  }).pipe(Effect.scoped, Effect.provide(layerMemory)),
);

it.effect("chatbots are not listed for each of many that retain", () =>
  Effect.gen(function* () {
    const { list } = yield* ChatbotRegistry;
    const chatbots = yield* Effect.forEach(Array.from({ length: 50 }).keys(), (at) =>
      make(`chatbot ${at}`, 2),
    );
    yield* TestClock.adjust("3 days");
    let lists = 0;
    const counted = Effect.suspend(() => {
      lists += 1;
      return list;
    });
    yield* retained({ registry: { list: counted } });
    yield* TestClock.adjust("61 seconds");
    assert.strictEqual(lists, 1);
    assert.deepStrictEqual((yield* Effect.forEach(chatbots, left)).flat(), []);
    yield* anHour;
    assert.strictEqual(lists, 2);
  }).pipe(Effect.scoped, Effect.provide(layerMemory)),
);

it.effect("chatbots that cannot be listed in between are listed again for the next", () =>
  Effect.gen(function* () {
    const { list } = yield* ChatbotRegistry;
    const { erase } = yield* ChatArchive;
    const chatbots = yield* Effect.forEach(["first", "second", "third"], (name) => make(name, 2));
    yield* TestClock.adjust("3 days");
    let lists = 0;
    const logs = yield* retained({
      archive: {
        erase: (chatbot, which) => Effect.delay(erase(chatbot, which), "2 seconds"),
      },
      registry: {
        list: Effect.suspend(() =>
          ++lists === 2 ? Effect.fail(new StorageUnavailable({ cause: "gone" })) : list,
        ),
      },
    });
    yield* TestClock.adjust("2 minutes");
    const [first, second, third] = yield* Effect.forEach(chatbots, left);
    assert.deepStrictEqual([first, second?.length, third], [[], 2, []]);
    assert.strictEqual(logs.filter((line) => line.startsWith("Error")).length, 1);
  }).pipe(Effect.scoped, Effect.provide(layerMemory)),
);

it.effect("chatbots whose chats cannot be erased are logged, and the others' are erased", () =>
  Effect.gen(function* () {
    const { erase } = yield* ChatArchive;
    const failing = yield* make("failing", 2);
    const broken = yield* make("broken", 2);
    const other = yield* make("other", 2);
    yield* TestClock.adjust("3 days");
    const logs = yield* retained({
      archive: {
        erase: (chatbot, which) =>
          chatbot === failing.id
            ? Effect.fail(new StorageUnavailable({ cause: "gone" }))
            : chatbot === broken.id
              ? Effect.die(new Error("broken"))
              : erase(chatbot, which),
      },
    });
    yield* TestClock.adjust("61 seconds");
    assert.deepStrictEqual(yield* left(other), []);
    const errors = logs.filter((line) => line.startsWith("Error"));
    assert.strictEqual(errors.length, 2);
    assert.include(errors[0], `of the chatbot ${failing.id} could not be erased`);
    assert.include(errors[1], `of the chatbot ${broken.id} could not be erased`);
    assert.include(errors[1], "Error: broken");
  }).pipe(Effect.scoped, Effect.provide(layerMemory)),
);

it.effect(
  "erasures are ended, also those of a process that was killed, and once more after a failure",
  () =>
    Effect.gen(function* () {
      const { id } = yield* make("short", 3);
      let failing = true;
      const compacted: Array<string> = [];
      yield* retained({
        archive: {
          compact: (pace) => {
            compacted.push(pace);
            return failing
              ? Effect.fail(new StorageUnavailable({ cause: "gone" }))
              : Effect.succeed(true);
          },
        },
      });
      yield* TestClock.adjust("61 seconds");
      assert.deepStrictEqual(compacted, ["quick"]);
      failing = false;
      yield* anHour;
      assert.deepStrictEqual(compacted.splice(0), ["quick", "quick"]);
      // These come to be erased soon after the first ones.
      for (let n = 0; n < 2; n++) {
        yield* TestClock.adjust("4 hours");
        const store = yield* ChatStore;
        yield* store.createChat(id, { name: null, userRef: null, helloMessage: null }, null);
      }
      yield* TestClock.adjust("4 hours");
      assert.deepStrictEqual(compacted, []);
      // For what one before left that is no more.
      yield* TestClock.adjust("14 hours");
      assert.deepStrictEqual(compacted.splice(0), ["thorough"]);
      yield* TestClock.adjust("47 hours");
      assert.deepStrictEqual(compacted.splice(0), ["thorough"]);
      yield* TestClock.adjust("12 hours");
      assert.deepStrictEqual(compacted.splice(0), ["quick", "quick"]);
      yield* TestClock.adjust("24 hours");
      assert.deepStrictEqual(compacted, ["thorough"]);
      yield* TestClock.adjust("48 hours");
      assert.deepStrictEqual(compacted, ["thorough"]);
    }).pipe(Effect.scoped, Effect.provide(layerMemory)),
);

it.effect("erasures that others kept from their end are ended as soon as these let it", () =>
  Effect.gen(function* () {
    yield* make("short", 3);
    let inTheWay = true;
    const compacted: Array<string> = [];
    yield* retained({
      archive: {
        compact: (pace) =>
          Effect.sync(() => {
            compacted.push(pace);
            return !inTheWay;
          }),
      },
    });
    yield* TestClock.adjust("61 seconds");
    yield* anHour;
    // For what one before left.
    assert.deepStrictEqual(compacted.splice(0), ["quick", "quick"]);
    yield* TestClock.adjust("3 days");
    assert.deepStrictEqual([...new Set(compacted.splice(0))], ["quick", "thorough"]);
    yield* anHour;
    assert.deepStrictEqual([...new Set(compacted.splice(0))], ["thorough"]);
    inTheWay = false;
    yield* anHour;
    assert.deepStrictEqual(compacted.splice(0), ["thorough"]);
    yield* TestClock.adjust("3 days");
    assert.deepStrictEqual(compacted, []);
  }).pipe(Effect.scoped, Effect.provide(layerMemory)),
);

it.effect("a defect is logged, and the next time makes up for it", () =>
  Effect.gen(function* () {
    const { list } = yield* ChatbotRegistry;
    const chatbot = yield* make("short", 2);
    yield* TestClock.adjust("3 days");
    let broken = true;
    const logs = yield* retained({
      registry: { list: Effect.suspend(() => (broken ? Effect.die(new Error("broken")) : list)) },
    });
    yield* TestClock.adjust("61 seconds");
    assert.strictEqual(logs.length, 1);
    assert.include(logs[0], "Error: broken");
    broken = false;
    yield* anHour;
    assert.deepStrictEqual(yield* left(chatbot), []);
  }).pipe(Effect.scoped, Effect.provide(layerMemory)),
);

it.effect("storage is compacted once, after all that was erased, and not for nothing", () =>
  Effect.gen(function* () {
    const chatbots = [yield* make("first", 2), yield* make("second", 2)];
    yield* TestClock.adjust("3 days");
    const found: Array<number> = [];
    const stores = yield* Effect.context<ChatStore>();
    yield* retained({
      archive: {
        compact: () =>
          Effect.forEach(chatbots, left).pipe(
            Effect.provideContext(stores),
            Effect.orDie,
            Effect.map((lists) => found.push(lists.flat().length) > 0),
          ),
      },
    });
    yield* TestClock.adjust("61 seconds");
    assert.deepStrictEqual(found, [0]);
    yield* anHour;
    assert.deepStrictEqual(found, [0]);
  }).pipe(Effect.scoped, Effect.provide(layerMemory)),
);
