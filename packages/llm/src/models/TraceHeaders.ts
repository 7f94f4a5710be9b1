import { Effect, Option, Tracer } from "effect";
import { HttpTraceContext } from "effect/http";

/** The headers that add the spans of a called service to the current trace; none outside a span. */
export const traceHeaders = Effect.map(
  Effect.serviceOption(Tracer.ParentSpan),
  (span): Readonly<Record<string, string>> =>
    Option.isSome(span) && span.value._tag === "Span" ? HttpTraceContext.toHeaders(span.value) : {},
);
