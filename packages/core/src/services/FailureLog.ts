/**
 * The log line of a request that failed.
 */
import { Cause, Effect, Option } from "effect";
import { AnswerUnavailable, StorageUnavailable } from "../model/Errors.ts";

/**
 * Logs a defect, an answer that failed or a store that cannot be reached; a client's mistake leaves no line. Only texts
 * are logged: an error's other properties may quote rows.
 */
export const logFailure = (cause: Cause.Cause<unknown>): Effect.Effect<void> =>
  Option.match(Cause.findErrorOption(cause), {
    onNone: () => Effect.logError("A request met a defect", Cause.pretty(cause)),
    onSome: (error) => {
      if (error instanceof AnswerUnavailable) return Effect.logWarning(error._tag, error.reason);
      return error instanceof StorageUnavailable
        ? Effect.logWarning(error._tag, error.message)
        : Effect.void;
    },
  });
