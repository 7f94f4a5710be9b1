import { assert, it, vi } from "@effect/vitest";
import { makeRequestTelemetry } from "@parley/http";
import { generalCodes } from "@parley/http/contract";
import { Effect, Exit, Fiber, Logger, Metric, Scope, Stream } from "effect";
import { HttpServerRequest, HttpServerResponse } from "effect/http";

const request = HttpServerRequest.fromWeb(new Request("http://parley.test/ask"));
const facts = { requestId: "1", method: "POST", route: "/ask" };

/** The statuses of the requests that have ended, and the number of requests in progress. */
const requestCounts = Effect.map(Metric.snapshot, (metrics) => ({
  ended: metrics.flatMap((metric) =>
    metric.type === "Histogram" ? [metric.attributes?.["http.response.status_code"]] : [],
  ),
  active: metrics.flatMap((metric) =>
    metric.type === "Gauge" ? [Number(metric.state.value)] : [],
  )[0],
}));

it.effect("a request whose client disconnects is counted with status 499", () =>
  Effect.gen(function* () {
    const { observe } = yield* makeRequestTelemetry();
    const fiber = yield* Effect.forkChild(observe(Effect.never, request, facts), {
      startImmediately: true,
    });
    assert.deepStrictEqual(yield* requestCounts, { ended: [], active: 1 });
    yield* Fiber.interrupt(fiber);
    assert.deepStrictEqual(yield* requestCounts, { ended: ["499"], active: 0 });
  }).pipe(Effect.scoped, Effect.provideService(Metric.MetricRegistry, new Map())),
);

it.effect("a request with a streamed response is in progress until its scope closes", () =>
  Effect.gen(function* () {
    const { observe } = yield* makeRequestTelemetry();
    const scope = yield* Scope.make();
    const response = Effect.succeed(HttpServerResponse.stream(Stream.never));
    yield* Scope.provide(observe(response, request, facts), scope);
    assert.deepStrictEqual(yield* requestCounts, { ended: [], active: 1 });
    yield* Scope.close(scope, Exit.void);
    assert.deepStrictEqual(yield* requestCounts, { ended: ["200"], active: 0 });
  }).pipe(Effect.provideService(Metric.MetricRegistry, new Map())),
);

it("requests refused because of their key or its rate are logged once a minute, with counts", async () => {
  vi.useFakeTimers();
  const lines: Array<string> = [];
  const logger = Logger.make((entry) => void lines.push(Logger.formatJson.log(entry)));
  const { countFailure } = await Effect.runPromise(
    makeRequestTelemetry().pipe(Effect.provide(Logger.layer([logger]))),
  );
  for (let n = 0; n < 70; n++) {
    for (const client of ["192.0.2.1", `198.51.100.${n}`])
      countFailure("API_KEY_NOT_VALID", { ...facts, client });
    countFailure("RATE_EXCEEDED", { ...facts, key: "4gT" });
  }
  countFailure("INVALID_PATH");
  assert.isEmpty(lines);
  vi.advanceTimersByTime(60_000);
  vi.advanceTimersByTime(600_000);
  assert.lengthOf(lines, 1);
  const { requests } = JSON.parse(lines[0]!).annotations;
  const [client, key] = ["API_KEY_NOT_VALID", "RATE_EXCEEDED"];
  assert.match(
    requests,
    new RegExp(
      `^${client} 192.0.2.1 70, ${client} 198.51.100.0 1, ${key} 4gT 70, .*, ${client} other 22$`,
    ),
  );
  countFailure("RATE_EXCEEDED", { ...facts, key: "4gT" });
  vi.advanceTimersByTime(59_999);
  assert.lengthOf(lines, 1);
  vi.advanceTimersByTime(1);
  assert.lengthOf(lines, 2);
  assert.strictEqual(JSON.parse(lines[1]!).annotations.requests, `${key} 4gT 1`);
  vi.useRealTimers();
});

it.effect("each kind of failure has a counter before it first occurs", () =>
  Effect.gen(function* () {
    yield* makeRequestTelemetry();
    const counters = (yield* Metric.snapshot).filter(({ id }) => id === "parley.failures");
    const counts = counters.map(({ attributes, state }) => [
      attributes?.["reason"],
      (state as { count: number }).count,
    ]);
    assert.sameDeepMembers(
      counts,
      [...Object.keys(generalCodes), "VALIDATION"].map((reason) => [reason, 0]),
    );
  }).pipe(Effect.provideService(Metric.MetricRegistry, new Map())),
);
