/**
 * Who the audit says it was.
 */
import { Effect } from "effect";
import { userInfo } from "node:os";

/** The operating system's user, such as `cli:ann`; one without a name by number, such as `cli:1000`. */
export const actor: Effect.Effect<string> = Effect.sync(() => {
  try {
    return `cli:${userInfo().username}`;
  } catch {
    return `cli:${process.getuid?.() ?? "unknown"}`;
  }
});
