/**
 * Cross-origin requests.
 */
import { Effect } from "effect";
import { HttpServerResponse, type HttpServerRequest } from "effect/http";
import { toJsonResponse } from "../contract/Wire.ts";

type Response = HttpServerResponse.HttpServerResponse;

/** Responds to preflights from the listed origins and lets their pages read all other responses. */
export const makeCors =
  (origins: ReadonlyArray<string>) =>
  <R>(
    { headers, method }: HttpServerRequest.HttpServerRequest,
    response: Effect.Effect<Response, never, R>,
  ): Effect.Effect<Response, never, R> => {
    const { origin = "", "access-control-request-method": requestedMethod } = headers;
    const isListed = origins.includes(origin);
    const isPreflight = isListed && method === "OPTIONS" && requestedMethod !== undefined;
    return Effect.map(
      isPreflight ? Effect.succeed(toJsonResponse({ status: 200, data: {} })) : response,
      (response) =>
        HttpServerResponse.setHeaders(response, {
          // Set even if the request has no origin: a cache must not reuse the response for a request that has one.
          vary: [response.headers["vary"] ?? [], "Origin"].flat().join(", "),
          ...(isListed && { "access-control-allow-origin": origin }),
          ...(isListed && (isPreflight ? preflight : exposedHeaders)),
        }),
    );
  };

const preflight = {
  "access-control-allow-methods": "GET, POST, PATCH, DELETE",
  "access-control-allow-headers":
    "x-api-key, content-type, accept, idempotency-key, on-disconnect, last-event-id, x-request-id",
  "access-control-max-age": "600",
};
const exposedHeaders = {
  "access-control-expose-headers": "idempotent-replayed, retry-after, x-request-id",
};
