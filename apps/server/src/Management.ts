/**
 * What operators and their tools ask of a running server, on a listener of its own: whether it lives,
 * whether it can work, and its metrics.
 */
import { ChatbotDirectory } from "@parley/core";
import { toEndpointNotFound, toGeneralResponse, toJsonResponse, toPath } from "@parley/http";
import { Duration, Effect } from "effect";
import { HttpServerRequest, HttpServerResponse } from "effect/http";
import { PrometheusMetrics } from "effect/observability";

/** How long the store may take to show that it works. */
const patience = Duration.seconds(2);

export const makeManagement = Effect.gen(function* () {
  const directory = yield* ChatbotDirectory;

  // No key has this id; looking for it takes the store one cheap read.
  const ready = directory.open("").pipe(
    Effect.as(toJsonResponse({ status: 200, data: { ready: true } })),
    Effect.timeoutOrElse({
      duration: patience,
      orElse: () => Effect.succeed(toGeneralResponse("STORAGE_UNAVAILABLE")),
    }),
    Effect.catch(() => Effect.succeed(toGeneralResponse("STORAGE_UNAVAILABLE"))),
  );

  const metrics = Effect.map(PrometheusMetrics.format(), (text) =>
    HttpServerResponse.text(text, { contentType: "text/plain; version=0.0.4; charset=utf-8" }),
  );

  return Effect.flatMap(HttpServerRequest.HttpServerRequest, ({ method, url }) => {
    const path = toPath(url);
    switch (`${method} ${path}`) {
      case "GET /health/live":
        return Effect.succeed(toJsonResponse({ status: 200, data: { live: true } }));
      case "GET /health/ready":
        return ready;
      case "GET /metrics":
        return metrics;
      default:
        return Effect.succeed(toEndpointNotFound(method, path));
    }
  });
});
