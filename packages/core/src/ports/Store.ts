/**
 * The ports that a store implements, all on the same data, and the state that a store may report.
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

/** The state of the store, for readiness checks. A store that does not provide it is assumed to be always writable. */
export const StoreState = Context.Reference<{
  /** The reason why writes, though perhaps not reads, fail at present; `null` if writes can succeed. */
  readonly readOnlyReason: Effect.Effect<string | null>;
}>("@parley/core/StoreState", { defaultValue: () => ({ readOnlyReason: Effect.succeed(null) }) });
