import { assert, it, vi } from "@effect/vitest";
import { overloadReasons, storageReasons } from "@parley/core/ports";
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

it("refused requests are logged once a minute, in one line for each reason, cause and caller", async () => {
  vi.useFakeTimers();
  const lines: Array<string> = [];
  const logger = Logger.make((entry) => void lines.push(Logger.formatJson.log(entry)));
  const { countFailure } = await Effect.runPromise(
    makeRequestTelemetry().pipe(Effect.provide(Logger.layer([logger]))),
  );
  const fieldsOf = () => lines.splice(0).map((line) => JSON.parse(line).annotations);
  for (let n = 0; n < 70; n++) {
    countFailure("RATE_EXCEEDED", { ...facts, client: `198.51.100.${n}`, key: "4gT" });
    countFailure("SERVICE_OVERLOADED", { ...facts, key: "4gT" }, "chat_queue");
    countFailure("API_KEY_NOT_VALID", { ...facts, client: "192.0.2.1", key: "old" }, "expired");
    countFailure("API_KEY_NOT_VALID", { ...facts, client: `198.51.100.${n}` }, "unknown");
  }
  countFailure("INVALID_PATH");
  countFailure("STORAGE_UNAVAILABLE", facts, "disk_full");
  assert.isEmpty(lines);
  vi.advanceTimersByTime(60_000);
  vi.advanceTimersByTime(600_000);
  const refusals = fieldsOf();
  const unknown = { reason: "API_KEY_NOT_VALID", cause: "unknown" };
  assert.lengthOf(refusals, 51);
  assert.deepStrictEqual(refusals.slice(0, 4), [
    { reason: "RATE_EXCEEDED", key: "4gT", requests: 70 },
    { reason: "SERVICE_OVERLOADED", cause: "chat_queue", key: "4gT", requests: 70 },
    {
      reason: "API_KEY_NOT_VALID",
      cause: "expired",
      key: "old",
      client: "192.0.2.1",
      requests: 70,
    },
    { ...unknown, client: "198.51.100.0", requests: 1 },
  ]);
  assert.deepStrictEqual(refusals.at(-1), { ...unknown, requests: 23 });
  countFailure("RATE_EXCEEDED", { ...facts, key: "4gT" });
  vi.advanceTimersByTime(59_999);
  assert.isEmpty(lines);
  vi.advanceTimersByTime(1);
  assert.deepStrictEqual(fieldsOf(), [{ reason: "RATE_EXCEEDED", key: "4gT", requests: 1 }]);
  vi.useRealTimers();
});

it.effect("each kind of failure has a counter before it first occurs", () =>
  Effect.gen(function* () {
    yield* makeRequestTelemetry();
    const causes: Readonly<Record<string, ReadonlyArray<string>>> = {
      SERVICE_OVERLOADED: Object.keys(overloadReasons),
      STORAGE_UNAVAILABLE: storageReasons,
    };
    const counters = (yield* Metric.snapshot).filter(({ id }) => id === "parley.failures");
    const counts = counters.map(({ attributes, state }) => [
      attributes?.["reason"],
      attributes?.["cause"],
      (state as { count: number }).count,
    ]);
    assert.sameDeepMembers(
      counts,
      [...Object.keys(generalCodes), "VALIDATION"].flatMap((reason) =>
        (causes[reason] ?? [undefined]).map((cause) => [reason, cause, 0]),
      ),
    );
  }).pipe(Effect.provideService(Metric.MetricRegistry, new Map())),
);
