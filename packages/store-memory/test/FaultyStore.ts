import { ChatArchive, ChatbotDirectory, ChatbotRegistry, ChatStore, TurnStore } from "@parley/core";
import {
  chatArchiveChecks,
  chatStoreChecks,
  modelCheck,
  raceChecks,
  StoreUnderTest,
  turnStoreChecks,
} from "@parley/core/testing";
import { layerMemoryOf, makeMemory, type Memory } from "@parley/store-memory";
import { Context, Effect, Layer } from "effect";
import type { Fault } from "./faults/Faults.ts";
import type { ChatbotsFault } from "./faults/RegistryFaults.ts";
import { underTest } from "./MemoryUnderTest.ts";

/** An instance over the memory, with the fault in it. */
const instance = (fault: Fault, memory: Memory) =>
  Layer.effectContext(
    Effect.gen(function* () {
      const broken = fault.break(
        { chats: yield* ChatStore, turns: yield* TurnStore, archive: yield* ChatArchive },
        memory,
      );
      return Context.make(ChatStore, broken.chats).pipe(
        Context.add(TurnStore, broken.turns),
        Context.add(ChatArchive, broken.archive),
      );
    }),
  ).pipe(Layer.provideMerge(layerMemoryOf(memory)));

/**
 * The memory store with the fault in it, and what the checks need, with another instance over the same memory that
 * has the same fault.
 */
export const layerFaulty = (fault: Fault) => {
  const memory = makeMemory();
  return Layer.effect(
    StoreUnderTest,
    Effect.gen(function* () {
      const { second, ...rest } = yield* StoreUnderTest;
      const other = yield* Layer.build(Layer.fresh(instance(fault, memory)));
      const ports = {
        chats: Context.get(other, ChatStore),
        turns: Context.get(other, TurnStore),
        archive: Context.get(other, ChatArchive),
      };
      return { ...rest, second: { ...second, ...ports } };
    }),
  ).pipe(Layer.provideMerge(Layer.provideMerge(underTest(memory), instance(fault, memory))));
};

/** The memory store with the fault in its registry or directory, and another instance over the same data. */
export const layerFaultyChatbots = (fault: ChatbotsFault) => {
  const memory = makeMemory();
  const broken = Layer.effectContext(
    Effect.gen(function* () {
      const sound = { registry: yield* ChatbotRegistry, directory: yield* ChatbotDirectory };
      const chatbots = () => {
        const { directory, registry } = fault.break(sound);
        return {
          registry: { ...sound.registry, ...registry },
          directory: { ...sound.directory, ...directory },
        };
      };
      const { directory, registry } = chatbots();
      const { second, ...rest } = yield* StoreUnderTest;
      return Context.make(ChatbotRegistry, registry).pipe(
        Context.add(ChatbotDirectory, directory),
        Context.add(StoreUnderTest, {
          ...rest,
          second: { ...second, registry: chatbots().registry },
        }),
      );
    }),
  );
  return broken.pipe(
    Layer.provideMerge(underTest(memory)),
    Layer.provideMerge(layerMemoryOf(memory)),
  );
};

/** The model's sequences are always the same, so that what is found once is found again. */
export const checks = [
  ...chatStoreChecks,
  ...turnStoreChecks,
  ...chatArchiveChecks,
  ...raceChecks,
  modelCheck({ seed: 1, runs: 300 }),
];
