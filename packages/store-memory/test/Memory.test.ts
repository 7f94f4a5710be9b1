import { assert, it } from "@effect/vitest";
import {
  ChatArchive,
  ChatbotDirectory,
  ChatbotRegistry,
  ChatStore,
  defaultSettings,
  newestChats,
  TurnStore,
  type ArchiveRecord,
} from "@parley/core";
import { layerMemory, layerMemoryOf, makeMemory } from "@parley/store-memory";
import { Context, Effect, Exit, Fiber, Layer, Option, Scheduler, Stream } from "effect";
import { TestClock } from "effect/testing";

it.effect("times do not go back with the clock, even when the newest chat was erased", () =>
  Effect.gen(function* () {
    const chats = yield* ChatStore;
    const archive = yield* ChatArchive;
    const create = Effect.map(
      chats.createChat(1, { name: null, userRef: null, helloMessage: "Hello" }, null),
      ({ chat }) => chat,
    );
    yield* TestClock.setTime(1_000);
    const { id } = yield* create;
    yield* archive.erase(1, { _tag: "Chat", id });
    yield* TestClock.setTime(500);
    const { createTime } = yield* create;
    assert.strictEqual(createTime.getTime(), 1_000);
  }).pipe(Effect.provide(layerMemory)),
);

it.effect("a retry key is forgotten after 24 hours, even when the clock went back meanwhile", () =>
  Effect.gen(function* () {
    const { createChat } = yield* ChatStore;
    const create = (key: string) =>
      createChat(1, { name: null, userRef: null, helloMessage: null }, { key, fingerprint: "f" });
    const hour = 3_600_000;
    yield* TestClock.setTime(100 * hour);
    yield* create("later");
    yield* TestClock.setTime(50 * hour);
    yield* create("earlier");
    yield* TestClock.setTime(75 * hour);
    assert.isFalse((yield* create("earlier")).replayed);
  }).pipe(Effect.provide(layerMemory)),
);

it.effect("a turn that ended is not held because the clock went back", () =>
  Effect.gen(function* () {
    const { createChat } = yield* ChatStore;
    const { release, take } = yield* TurnStore;
    yield* TestClock.setTime(1_000_000);
    const created = yield* createChat(1, { name: null, userRef: null, helloMessage: null }, null);
    const taken = yield* take(1, created.chat.id, null);
    if (taken._tag === "Turn") yield* release(taken.turn);
    yield* TestClock.setTime(0);
    assert.strictEqual((yield* take(1, created.chat.id, null))._tag, "Turn");
  }).pipe(Effect.provide(layerMemory)),
);

it.effect("no chat is made in the middle of an import, whenever it is another fiber's time", () =>
  Effect.gen(function* () {
    const chats = yield* ChatStore;
    const archive = yield* ChatArchive;
    for (let chatbot = 1; chatbot <= 300; chatbot++) {
      const createTime = new Date(0);
      const record: ArchiveRecord = {
        _tag: "Chat",
        chat: { id: chatbot, name: null, userRef: null, createTime },
      };
      const [imported] = yield* Effect.all(
        [
          Effect.exit(archive.import(chatbot, Stream.make(record))),
          chats.createChat(chatbot, { name: null, userRef: null, helloMessage: null }, null),
        ],
        { concurrency: 2 },
      ).pipe(Effect.provideService(Scheduler.MaxOpsBeforeYield, 3 + (chatbot % 100)));
      const { items } = yield* chats.listChats(chatbot, newestChats);
      const ids = new Set(items.map(({ id }) => id));
      assert.strictEqual(ids.size, Exit.isSuccess(imported) ? 2 : 1);
      assert.strictEqual(items.length, ids.size);
      // The imported one was there first.
      if (ids.size === 2) assert.isTrue(ids.has(chatbot) && items[1]!.id === chatbot);
    }
  }).pipe(Effect.provide(layerMemory)),
);

it.effect("a workspace is renamed in one step, whenever it is another fiber's time", () =>
  Effect.gen(function* () {
    const registry = yield* ChatbotRegistry;
    const chatbots = 50;
    for (let n = 0; n < chatbots; n++) {
      const rest = { description: "", settings: defaultSettings, keys: [] };
      yield* registry.create({ workspaceName: "w0", name: `${n}`, ...rest }, "somebody");
    }
    for (let n = 0; n < 30; n++) {
      const look = Effect.map(registry.list, (all) =>
        all.filter(({ chatbot }) => chatbot.workspaceName === `w${n}`),
      );
      const looking = Effect.forEach(Array.from({ length: chatbots }), () =>
        Effect.andThen(Effect.yieldNow, look),
      );
      const [, seen] = yield* Effect.all(
        [registry.renameWorkspace(`w${n}`, `w${n + 1}`, "somebody"), looking],
        { concurrency: 2 },
      ).pipe(Effect.provideService(Scheduler.MaxOpsBeforeYield, 3 + n));
      for (const { length } of seen) assert.include([0, chatbots], length);
    }
  }).pipe(Effect.provide(layerMemory)),
);

it.effect(
  "instances over one memory give their chatbots no id twice, and tell each other of them",
  () =>
    Effect.gen(function* () {
      const memory = makeMemory();
      const instance = Layer.build(Layer.fresh(layerMemoryOf(memory)));
      const [first, second] = [yield* instance, yield* instance];
      const told = yield* Stream.runHead(Context.get(second, ChatbotDirectory).changed).pipe(
        Effect.forkChild({ startImmediately: true }),
      );
      const ids = yield* Effect.forEach([first, second], (one, n) =>
        Context.get(one, ChatbotRegistry).create(
          {
            workspaceName: "W",
            name: `${n}`,
            description: "",
            settings: defaultSettings,
            keys: [],
          },
          "somebody",
        ),
      );
      assert.deepStrictEqual(
        ids.map(({ id }) => id),
        [1, 2],
      );
      assert.deepStrictEqual(yield* Fiber.join(told), Option.some(1));
    }),
);
