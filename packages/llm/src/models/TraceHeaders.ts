import { isTraced } from "@parley/core/ports";
import { Effect } from "effect";
import { HttpTraceContext } from "effect/http";

/** The headers that add the spans of a called service to the current trace; none without a tracer. */
export const traceHeaders: Effect.Effect<Readonly<Record<string, string>>> = Effect.flatMap(
  isTraced,
  (hasTracer) =>
    hasTracer
      ? Effect.match(Effect.currentSpan, {
          onFailure: () => ({}),
          onSuccess: HttpTraceContext.toHeaders,
        })
      : Effect.succeed({}),
);
