/**
 * How the process ends. Being stopped by a signal is no failure: supervisors take another exit code
 * than 0 for one.
 */
import { Cause, Exit, Runtime } from "effect";

export const teardown: Runtime.Teardown = (exit, onExit) =>
  Exit.isFailure(exit) && Cause.hasInterruptsOnly(exit.cause)
    ? onExit(0)
    : Runtime.defaultTeardown(exit, onExit);
