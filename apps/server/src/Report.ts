/**
 * What the process says when it fails: one line for what somebody can mend and one with a hint,
 * everything for a defect.
 */
import { Cause, Console, Effect } from "effect";
import { CliError } from "effect/cli";
import { told, type Told } from "./Told.ts";

/** Tells it on standard error. */
export const report = ({ hint, message }: Told): Effect.Effect<void> =>
  Console.error(`parley: ${message}${hint === null ? "" : `\nhint: ${hint}`}`);

/** Tells why the effect failed. */
export const reported = <A, E, R>(effect: Effect.Effect<A, E, R>): Effect.Effect<A, E, R> =>
  Effect.tapCause(effect, (cause) => {
    if (Cause.hasInterruptsOnly(cause)) return Effect.void;
    const error = Cause.squash(cause);
    // The command line has told those itself.
    if (CliError.isCliError(error)) return Effect.void;
    return Cause.hasDies(cause) || !(error instanceof Error)
      ? Effect.logError(cause)
      : report(told(error));
  });
