/**
 * Cross-origin requests, off unless origins are listed.
 */
import { Effect } from "effect";
import { HttpServerResponse, type HttpServerRequest } from "effect/http";
import { json } from "./ErrorResponses.ts";

type Response = HttpServerResponse.HttpServerResponse;

/** Answers preflights of the listed origins, and lets their pages read the other answers. */
export const corsOf =
  (origins: ReadonlyArray<string>) =>
  <R>(
    { headers, method }: HttpServerRequest.HttpServerRequest,
    answer: Effect.Effect<Response, never, R>,
  ): Effect.Effect<Response, never, R> => {
    if (origins.length === 0) return answer;
    const origin = headers["origin"];
    // Also where there is none: another origin's answer would be another.
    const vary = { vary: "Origin" };
    if (origin === undefined || !origins.includes(origin)) {
      return Effect.map(answer, HttpServerResponse.setHeaders(vary));
    }
    const allowed = { "access-control-allow-origin": origin, ...vary };
    if (method === "OPTIONS" && headers["access-control-request-method"] !== undefined) {
      return Effect.succeed(
        json(
          { status: 200, data: {} },
          {
            ...allowed,
            "access-control-allow-methods": "GET, POST",
            "access-control-allow-headers":
              "x-api-key, content-type, accept, idempotency-key, on-disconnect, last-event-id, x-request-id",
            "access-control-max-age": "600",
          },
        ),
      );
    }
    return Effect.map(
      answer,
      HttpServerResponse.setHeaders({
        ...allowed,
        "access-control-expose-headers": "idempotent-replayed, retry-after, x-request-id",
      }),
    );
  };
