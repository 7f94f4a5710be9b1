/**
 * How the process ends: 0 when it did its work, 2 when the command line was wrong, 1 when it failed
 * otherwise, 130 when it was stopped.
 */
import { Cause, Exit, Runtime } from "effect";
import { CliError } from "effect/cli";

/**
 * @param serves whether being stopped is how the process is meant to end: supervisors take another exit
 * code than 0 for a failure
 */
export const teardown =
  (serves: boolean): Runtime.Teardown =>
  (exit, onExit) => {
    if (Exit.isSuccess(exit)) return onExit(0);
    if (Cause.hasInterruptsOnly(exit.cause)) return onExit(serves ? 0 : 130);
    const error = Cause.squash(exit.cause);
    const code = Runtime.getErrorExitCode(error);
    return onExit(CliError.isCliError(error) && code !== 0 ? 2 : code);
  };
