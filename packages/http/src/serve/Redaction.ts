/**
 * Spans of requests quote addresses, and the query of ours holds what users wrote.
 */
import { Layer } from "effect";
import { UrlParams } from "effect/http";

/**
 * Keeps the values of query parameters out of spans and errors of requests. A server of one's own around
 * `makeApp` needs it where a tracer is installed; `makeWebHandler` brings it along.
 */
export const layerRedaction: Layer.Layer<never> = Layer.succeed(UrlParams.CurrentRedactedNames, [
  /^/,
]);
