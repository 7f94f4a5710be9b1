/**
 * Cross-origin requests.
 */
import { Effect } from "effect";
import { HttpServerResponse, type HttpServerRequest } from "effect/http";
import { toJsonResponse } from "../contract/Wire.ts";

type Response = HttpServerResponse.HttpServerResponse;

/** Responds to preflights of the listed origins and lets their pages read all other responses. */
export const makeCors =
  (origins: ReadonlyArray<string>) =>
  <R>(
    { headers, method }: HttpServerRequest.HttpServerRequest,
    response: Effect.Effect<Response, never, R>,
  ): Effect.Effect<Response, never, R> => {
    const origin = headers["origin"];
    if (origin === undefined || !origins.includes(origin)) return Effect.map(response, varied);
    const isPreflight =
      method === "OPTIONS" && headers["access-control-request-method"] !== undefined;
    return Effect.map(
      Effect.map(
        isPreflight ? Effect.succeed(toJsonResponse({ status: 200, data: {} })) : response,
        varied,
      ),
      HttpServerResponse.setHeaders({
        "access-control-allow-origin": origin,
        ...(isPreflight ? preflight : exposed),
      }),
    );
  };

/** Without an origin too: a cache must not reuse that response for a request with one. */
const varied = (response: Response): Response => {
  const { vary } = response.headers;
  return HttpServerResponse.setHeader(
    response,
    "vary",
    vary === undefined ? "Origin" : `${vary}, Origin`,
  );
};

const preflight = {
  "access-control-allow-methods": "GET, POST",
  "access-control-allow-headers":
    "x-api-key, content-type, accept, idempotency-key, on-disconnect, last-event-id, x-request-id",
  "access-control-max-age": "600",
};
const exposed = {
  "access-control-expose-headers": "idempotent-replayed, retry-after, x-request-id",
};
