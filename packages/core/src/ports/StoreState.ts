/**
 * What a store tells a server about itself, besides the ports.
 */
import { Context, Effect } from "effect";

/** The state of the store, for readiness. A store that does not provide it counts as one that can always write. */
export const StoreState = Context.Reference<{
  /** Why no write can succeed at present; `null`: writes can succeed. Reads may succeed all the same. */
  readonly readOnlyReason: Effect.Effect<string | null>;
}>("@parley/core/StoreState", { defaultValue: () => ({ readOnlyReason: Effect.succeed(null) }) });
