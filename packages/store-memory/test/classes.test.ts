import { assert, layer } from "@effect/vitest";
import { ChatArchive, ChatbotDirectory, ChatbotRegistry, ChatStore, TurnStore } from "@parley/core";
import { storeChecks, StoreUnderTest } from "@parley/core/testing";
import { layerMemoryOf, makeMemory } from "@parley/store-memory";
import { Context, Effect, Layer } from "effect";
import { underTest } from "./MemoryUnderTest.ts";

/** The same port as an object of a class: its methods are not its own, and need it. */
const instanceOf = <Port extends object>(port: Port): Port => {
  const methods: Record<string, unknown> = {};
  const instance = Object.create(methods);
  for (const [name, member] of Object.entries(port)) {
    if (typeof member !== "function") instance[name] = member;
    else {
      methods[name] = function (this: unknown, ...parameters: ReadonlyArray<unknown>) {
        assert.strictEqual(this, instance, `${name} is called without its object`);
        return member.apply(port, parameters);
      };
    }
  }
  return instance;
};

const memory = makeMemory();

const ports = Effect.map(
  Effect.context<ChatArchive | ChatbotDirectory | ChatbotRegistry | ChatStore | TurnStore>(),
  (built) =>
    Context.make(ChatStore, instanceOf(Context.get(built, ChatStore))).pipe(
      Context.add(TurnStore, instanceOf(Context.get(built, TurnStore))),
      Context.add(ChatArchive, instanceOf(Context.get(built, ChatArchive))),
      Context.add(ChatbotRegistry, instanceOf(Context.get(built, ChatbotRegistry))),
      Context.add(ChatbotDirectory, instanceOf(Context.get(built, ChatbotDirectory))),
    ),
);

const instances = Layer.effect(
  StoreUnderTest,
  Effect.map(StoreUnderTest, ({ second, ...members }) => ({
    ...members,
    second: {
      chats: instanceOf(second.chats),
      turns: instanceOf(second.turns),
      archive: instanceOf(second.archive),
      registry: instanceOf(second.registry),
    },
  })),
).pipe(Layer.provide(underTest(memory)), Layer.provideMerge(Layer.effectContext(ports)));

layer(Layer.provide(instances, layerMemoryOf(memory)))("a store of classes", (it) => {
  for (const { name, run } of storeChecks) it.effect(name, () => run);
});
