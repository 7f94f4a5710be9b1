/**
 * Tests that the conformance kit finds faulty stores, each of which breaks one promise. Small changes to the memory
 * store's own code are tried by `mutation/`; these faults are of kinds that no such change makes.
 */
import { assert, it } from "@effect/vitest";
import {
  ChatArchive,
  ChatbotDirectory,
  ChatbotRegistry,
  ChatStore,
  TurnStore,
} from "@parley/core/ports";
import { storeChecks, storeUnderTest } from "@parley/core/testing";
import { randomChecks } from "@parley/core/testing/random";
import { layerMemoryOf, makeMemory } from "@parley/store-memory";
import { Context, Effect, Exit, Layer, Stream } from "effect";

interface Stores {
  readonly chats: ChatStore["Service"];
  readonly turns: TurnStore["Service"];
  readonly archive: ChatArchive["Service"];
  readonly registry: ChatbotRegistry["Service"];
  readonly directory: ChatbotDirectory["Service"];
}

/** The methods in which a faulty store differs from the sound one. */
type Fault = (sound: Stores) => { readonly [Port in keyof Stores]?: Partial<Stores[Port]> };

const faults: ReadonlyArray<readonly [name: string, Fault]> = [
  [
    "a page of entries and its total are not read from one snapshot",
    ({ chats }) => ({
      chats: {
        listEntries: (chatbot, chat, query) =>
          Effect.gen(function* () {
            const { items } = yield* chats.listEntries(chatbot, chat, query);
            yield* Effect.yieldNow;
            const { total } = yield* chats.listEntries(chatbot, chat, query);
            return { items, total };
          }),
      },
    }),
  ],
  [
    "a visitor reads the history of somebody else's chat",
    ({ chats: { listEntries } }) => ({
      chats: { listEntries: (chatbot, chat, query) => listEntries(chatbot, chat, query) },
    }),
  ],
  [
    "a visitor can tell whether another user's chat is in use",
    ({ turns: { take } }) => ({
      turns: {
        take: (chatbot, chat, key, visitor) =>
          Effect.catchTag(take(chatbot, chat, key, visitor), "ChatNotFound", (error) =>
            Effect.flatMap(take(chatbot, chat, key), (outcome) =>
              outcome._tag === "Held" ? Effect.succeed(outcome) : Effect.fail(error),
            ),
          ),
      },
    }),
  ],
  [
    "an export reads its first record from a different snapshot",
    ({ archive }) => ({
      archive: {
        export: (chatbot, actor) =>
          Stream.concat(
            Stream.take(archive.export(chatbot, actor), 1),
            Stream.drop(archive.export(chatbot, actor), 1),
          ),
      },
    }),
  ],
  [
    "a failed import keeps its first record",
    ({ archive }) => ({
      archive: {
        import: (chatbot, records, actor) =>
          Effect.tapError(archive.import(chatbot, records, actor), () =>
            Effect.ignore(archive.import(chatbot, Stream.take(records, 1), actor)),
          ),
      },
    }),
  ],
  [
    "a change to a chatbot overwrites a concurrent change to other settings",
    ({ registry }) => ({
      registry: {
        change: (id, change, actor) =>
          Effect.gen(function* () {
            const current = (yield* registry.list).find(({ chatbot }) => chatbot.id === id);
            yield* Effect.yieldNow;
            const settings = { ...current?.chatbot.settings, ...change.settings };
            return yield* registry.change(id, { ...change, settings }, actor);
          }),
      },
    }),
  ],
  [
    "a revoked key stays valid if it was used before",
    ({ directory }) => {
      const grants = new Map<string, Effect.Success<ReturnType<typeof directory.find>>>();
      return {
        directory: {
          find: (keyId) =>
            Effect.map(directory.find(keyId), (grant) => {
              if (grant !== null) grants.set(keyId, grant);
              return grant ?? grants.get(keyId) ?? null;
            }),
        },
      };
    },
  ],
];

const layerFaulty = (fault: Fault) => {
  const faulty = Layer.effectContext(
    Effect.gen(function* () {
      const sound = {
        chats: yield* ChatStore,
        turns: yield* TurnStore,
        archive: yield* ChatArchive,
        registry: yield* ChatbotRegistry,
        directory: yield* ChatbotDirectory,
      };
      const { archive, chats, directory, registry, turns } = fault(sound);
      return Context.make(ChatStore, { ...sound.chats, ...chats }).pipe(
        Context.add(TurnStore, { ...sound.turns, ...turns }),
        Context.add(ChatArchive, { ...sound.archive, ...archive }),
        Context.add(ChatbotRegistry, { ...sound.registry, ...registry }),
        Context.add(ChatbotDirectory, { ...sound.directory, ...directory }),
      );
    }),
  );
  return storeUnderTest(Layer.provideMerge(faulty, layerMemoryOf(makeMemory())));
};

const oracle = layerMemoryOf(makeMemory());
const checks = [...randomChecks({ oracle, seed: 1, shrinkMillis: 0 }), ...storeChecks];

it.effect.each(faults)("the kit finds a store in which %s", ([, fault]) =>
  Effect.gen(function* () {
    for (const { run } of checks) if (Exit.isFailure(yield* Effect.exit(run))) return;
    assert.fail("no check fails");
  }).pipe(Effect.provide(layerFaulty(fault))),
);
