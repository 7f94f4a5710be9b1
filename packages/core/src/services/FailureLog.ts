/**
 * What the log is told of requests that failed. Texts alone: an error's other properties may quote rows.
 */
import { Cause, Clock, Effect } from "effect";
import type { AskError } from "../model/Errors.ts";

export const makeFailureLog = () => {
  let warned = -Infinity;
  return {
    /**
     * What could not be reached, and nothing of what a client did wrong. At most one line a second: while the storage
     * is away, every request would write one.
     */
    failure: (error: AskError): Effect.Effect<void> => {
      if (error._tag !== "AnswerUnavailable" && error._tag !== "StorageUnavailable") {
        return Effect.void;
      }
      return Effect.flatMap(Clock.currentTimeMillis, (now) => {
        if (now - warned < 1_000) return Effect.void;
        warned = now;
        return Effect.logWarning(
          error._tag,
          error._tag === "AnswerUnavailable" ? error.reason : error.message,
        );
      });
    },
    defect: (cause: Cause.Cause<unknown>): Effect.Effect<void> =>
      Effect.logError("A request met a defect", Cause.pretty(cause)),
  };
};
