/**
 * The ports that a store implements, all of them over the same data.
 */
import type { Layer } from "effect";
import type { ChatArchive } from "./ChatArchive.ts";
import type { ChatbotDirectory } from "./ChatbotDirectory.ts";
import type { ChatbotRegistry } from "./ChatbotRegistry.ts";
import type { ChatStore } from "./ChatStore.ts";
import type { TurnStore } from "./TurnStore.ts";

/** The ports of a store. */
export type StorePorts = ChatStore | TurnStore | ChatArchive | ChatbotDirectory | ChatbotRegistry;

/** A store, such as `memory()` or `postgres(url)`. */
export interface Store extends Layer.Layer<StorePorts, unknown> {}
