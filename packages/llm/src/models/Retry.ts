/**
 * When a call that failed is made again.
 */
import { AskDeadline } from "@parley/core";
import { Duration, Effect, Schedule } from "effect";
import type { ModelFailure } from "./ModelFailure.ts";

/**
 * After 200 ms, then 400 ms and so on, jittered, each on top of its `Retry-After`. It ends with a failure that is not
 * retryable, and where the next call would begin after the ask's deadline.
 */
export const retrySchedule = (retries: number) =>
  Schedule.exponential("200 millis").pipe(
    Schedule.setInputType<Pick<ModelFailure, "retryable" | "retryAfterMillis">>(),
    Schedule.jittered,
    Schedule.upTo({ times: retries }),
    Schedule.addDelay(({ input }) => Effect.succeed(Duration.millis(input.retryAfterMillis ?? 0))),
    Schedule.while(({ duration, input, now }) =>
      Effect.map(
        AskDeadline,
        (deadline) => input.retryable && now + Duration.toMillis(duration) < deadline,
      ),
    ),
  );

/** How many calls may follow a failed one at the same provider, if nothing else is set. */
export const defaultRetries = 4;
