import { Effect, Option, Tracer } from "effect";
import { HttpTraceContext } from "effect/http";

/** The headers with which a called service adds its spans to the current trace; empty outside a span. */
export const traceHeaders = Effect.map(
  Effect.serviceOption(Tracer.ParentSpan),
  (span): Readonly<Record<string, string>> =>
    Option.isSome(span) && span.value._tag === "Span" ? HttpTraceContext.toHeaders(span.value) : {},
);
