/**
 * The ports that a store implements, all of them over the same data, and the state that it may report.
 */
import { Context, Effect, type Layer } from "effect";
import type { ChatArchive } from "./ChatArchive.ts";
import type { ChatbotDirectory } from "./ChatbotDirectory.ts";
import type { ChatbotRegistry } from "./ChatbotRegistry.ts";
import type { ChatStore } from "./ChatStore.ts";
import type { TurnStore } from "./TurnStore.ts";

/** The ports of a store. */
export type StorePorts = ChatStore | TurnStore | ChatArchive | ChatbotDirectory | ChatbotRegistry;

/** A store, such as `memory()` or `postgres(url)`. */
export interface Store extends Layer.Layer<StorePorts, unknown> {}

/** The state of the store, for readiness. A store that does not provide it counts as one that can always write. */
export const StoreState = Context.Reference<{
  /** Why no write can succeed at present; `null`: writes can succeed. Reads may succeed all the same. */
  readonly readOnlyReason: Effect.Effect<string | null>;
}>("@parley/core/StoreState", { defaultValue: () => ({ readOnlyReason: Effect.succeed(null) }) });
