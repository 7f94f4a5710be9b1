/**
 * The reference store, which keeps its data in this process's memory and is the shortest implementation of the five
 * ports of a store. The data is lost when the process ends.
 */
import {
  ChatArchive,
  ChatStore,
  TurnStore,
  type Chatbot,
  type Store,
  type StorePorts,
} from "@parley/core/ports";
import { Context, Effect, Layer } from "effect";
import { makeMemory, type Memory } from "./Memory.ts";
import { makeChatArchive } from "./MemoryChatArchive.ts";
import { makeChatbotRegistry } from "./MemoryChatbotRegistry.ts";
import { makeChatStore } from "./MemoryChatStore.ts";
import { makeTurnStore } from "./MemoryTurnStore.ts";

export { makeMemory, type Memory } from "./Memory.ts";

/** A store over the given memory, which several instances may share. */
export const layerMemoryOf = (memory: Memory): Layer.Layer<StorePorts> =>
  Layer.syncContext(() =>
    Context.make(ChatStore, makeChatStore(memory)).pipe(
      Context.add(TurnStore, makeTurnStore(memory)),
      Context.add(ChatArchive, makeChatArchive(memory)),
      Context.merge(makeChatbotRegistry(memory)),
    ),
  );

/** A store with its own memory, in which these chatbots are registered without keys. */
export const layerMemoryWith = (chatbots: ReadonlyArray<Chatbot>): Layer.Layer<StorePorts> =>
  Layer.unwrap(Effect.sync(() => layerMemoryOf(makeMemory(chatbots))));

/** A store with its own memory, which is empty at first. */
export const layerMemory: Layer.Layer<StorePorts> = layerMemoryWith([]);

/** Makes a store in this process's memory, for `openParley`. Each call to `openParley` starts with an empty memory. */
export const memory = (): Store => layerMemory;
