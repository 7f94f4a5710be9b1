import { assert, it } from "@effect/vitest";
import { makeRequestLog } from "@parley/http";
import { Effect, Exit, Fiber, Metric, Scope, Stream } from "effect";
import { HttpServerRequest, HttpServerResponse } from "effect/http";

const request = HttpServerRequest.fromWeb(new Request("http://parley.test/ask"));
const facts = { requestId: "1", method: "POST", route: "/ask" };

/** The statuses of the requests that ended, and how many are in progress. */
const counted = Effect.map(Metric.snapshot, (metrics) => ({
  ended: metrics.flatMap((one) =>
    one.type === "Histogram" ? [one.attributes?.["http.response.status_code"]] : [],
  ),
  active: metrics.flatMap((one) => (one.type === "Gauge" ? [Number(one.state.value)] : []))[0],
}));

const withMetrics = Effect.provideService(Metric.MetricRegistry, new Map());

it.effect("a request whose client hangs up counts as 499", () =>
  Effect.gen(function* () {
    const { observe } = yield* makeRequestLog();
    const asked = yield* Effect.forkChild(observe(Effect.never, request, facts), {
      startImmediately: true,
    });
    assert.deepStrictEqual(yield* counted, { ended: [], active: 1 });
    yield* Fiber.interrupt(asked);
    assert.deepStrictEqual(yield* counted, { ended: ["499"], active: 0 });
  }).pipe(Effect.scoped, withMetrics),
);

it.effect("a stream lasts until its request's scope closes", () =>
  Effect.gen(function* () {
    const { observe } = yield* makeRequestLog();
    const scope = yield* Scope.make();
    const response = Effect.succeed(HttpServerResponse.stream(Stream.never));
    yield* Scope.provide(observe(response, request, facts), scope);
    assert.deepStrictEqual(yield* counted, { ended: [], active: 1 });
    yield* Scope.close(scope, Exit.void);
    assert.deepStrictEqual(yield* counted, { ended: ["200"], active: 0 });
  }).pipe(Effect.provideService(Metric.MetricRegistry, new Map())),
);
