/**
 * The application of the management listener: liveness, readiness and metrics.
 */
import { ChatbotDirectory, StoreState } from "@parley/core/ports";
import { toEndpointNotFound, toGeneralBody, toJsonResponse, toPath } from "@parley/http";
import { Duration, Effect, Fiber, Metric } from "effect";
import { HttpServerRequest, HttpServerResponse } from "effect/http";
import { PrometheusMetrics } from "effect/observability";
import { Lifecycle } from "../Lifecycle.ts";

/** The timeout for the store's response; if it expires, the server is not ready. */
const readyTimeout = Duration.seconds(2);

const units: Readonly<Record<string, string>> = { s: "_seconds", By: "_bytes" };

/**
 * Formats all metrics for Prometheus. Following its conventions, adds the unit to the OpenTelemetry names and, for
 * counters, `_total`.
 */
const formatMetrics = Effect.flatMap(Metric.MetricRegistry, (metrics) => {
  const names = new Map(
    Array.from(metrics.values(), ({ attributes, id, type }) => {
      const unit = units[attributes?.["unit"] ?? ""] ?? "";
      return [id, `${id}${unit}${type === "Counter" ? "_total" : ""}`];
    }),
  );
  return PrometheusMetrics.format({ metricNameMapper: (id) => names.get(id) ?? id });
});

export const makeManagement = Effect.gen(function* () {
  const directory = yield* ChatbotDirectory;
  const store = yield* StoreState;
  const lifecycle = yield* Lifecycle;

  // No key has an empty id, so the look-up costs the store one cheap read. Both reads are forked so that the timeout
  // applies even though reads ignore interruption.
  const storeReadiness = Effect.forkDetach(directory.find("")).pipe(
    Effect.flatMap(Fiber.join),
    Effect.andThen(Effect.flatMap(Effect.forkDetach(store.readOnlyReason), Fiber.join)),
    Effect.filterOrFail((reason) => reason === null),
    Effect.timeout(readyTimeout),
    Effect.as(toJsonResponse({ status: 200, data: { ready: true } })),
    Effect.orElseSucceed(() =>
      toJsonResponse({ ...toGeneralBody("STORAGE_UNAVAILABLE"), status: 503 }),
    ),
  );

  const ready = Effect.suspend(() => {
    const { phase } = lifecycle;
    return phase === "serving"
      ? storeReadiness
      : Effect.succeed(toJsonResponse({ status: 503, data: { ready: false, phase } }));
  });

  const metrics = Effect.map(formatMetrics, (text) =>
    HttpServerResponse.text(text, { contentType: "text/plain; version=0.0.4; charset=utf-8" }),
  );

  return Effect.flatMap(HttpServerRequest.HttpServerRequest, ({ method, url }) => {
    const path = toPath(url);
    switch (`${method === "HEAD" ? "GET" : method} ${path}`) {
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
