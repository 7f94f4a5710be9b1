/**
 * The reference store, which keeps its data in this process's memory. The data is lost when the process ends.
 */
import { optionsOf, storeOf, type Chatbot, type Store, type StorePorts } from "@parley/core/ports";
import { Effect, Layer } from "effect";
import { makeMemory, type Memory } from "./Memory.ts";
import { makeRows } from "./MemoryRows.ts";

export { makeMemory, type Memory } from "./Memory.ts";

/** A store over the given memory, which several instances may share. */
export const layerMemoryOf = (memory: Memory): Layer.Layer<StorePorts> =>
  Layer.syncContext(() => storeOf(makeRows(memory)));

/** A store with its own memory, in which these chatbots are registered without keys. */
export const layerMemoryWith = (chatbots: ReadonlyArray<Chatbot>): Layer.Layer<StorePorts> =>
  Layer.unwrap(Effect.sync(() => layerMemoryOf(makeMemory(chatbots))));

/** A store with its own memory, which is empty at first. */
export const layerMemory: Layer.Layer<StorePorts> = layerMemoryWith([]);

/** Makes a store in this process's memory, for `openParley`. Each call to `openParley` starts with an empty memory. */
export const memory = (...none: []): Store => {
  optionsOf("memory", (none as [object?])[0], {});
  return layerMemory;
};
