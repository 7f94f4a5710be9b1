/**
 * What the process says when it fails: one line for what an operator can mend, everything for a defect.
 */
import { Cause, Console, Effect } from "effect";
import { CliError } from "effect/cli";

/** Tells why the effect failed, on standard error. */
export const reported = <A, E, R>(effect: Effect.Effect<A, E, R>): Effect.Effect<A, E, R> =>
  Effect.tapCause(effect, (cause) => {
    if (Cause.hasInterruptsOnly(cause)) return Effect.void;
    const error = Cause.squash(cause);
    // The command line has told those itself.
    if (CliError.isCliError(error)) return Effect.void;
    return Cause.hasDies(cause) || !(error instanceof Error)
      ? Effect.logError(cause)
      : Console.error(`parley: ${error.message.replace(/\s*\n\s*/g, " ")}`);
  });
