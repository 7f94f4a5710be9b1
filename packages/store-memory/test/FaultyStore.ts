import { ChatArchive, ChatStore, TurnStore } from "@parley/core";
import { StoreUnderTest } from "@parley/core/testing";
import { layerMemoryOf, makeMemory, type Memory } from "@parley/store-memory";
import { Context, Effect, Layer } from "effect";
import type { Fault } from "./faults/Faults.ts";
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
 * The memory store with the fault in it, and what the checks need; another instance over the same memory, with the
 * same fault, reads and erases for them.
 */
export const layerFaulty = (fault: Fault) => {
  const memory = makeMemory();
  return Layer.effect(
    StoreUnderTest,
    Effect.gen(function* () {
      const { second, ...rest } = yield* StoreUnderTest;
      const other = yield* Layer.build(Layer.fresh(instance(fault, memory)));
      const [chats, archive] = [Context.get(other, ChatStore), Context.get(other, ChatArchive)];
      return { ...rest, second: { ...second, chats, archive } };
    }),
  ).pipe(Layer.provideMerge(Layer.provideMerge(underTest(memory), instance(fault, memory))));
};
