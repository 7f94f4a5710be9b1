import { assert, it } from "@effect/vitest";
import {
  AnswerUnavailable,
  ChatNotFound,
  inSpan,
  logFailure,
  Overloaded,
} from "@parley/core/ports";
import { Cause, Context, Effect, Logger, Metric, Tracer } from "effect";
import { makeTopLabels } from "../../src/services/Telemetry.ts";

it.effect("each reason for a failure is logged on its own line, except a client's mistake", () =>
  Effect.gen(function* () {
    const lines: Array<string> = [];
    const logger = Logger.make((entry) => void lines.push(Logger.formatJson.log(entry)));
    const causes = [
      Cause.fail(new AnswerUnavailable({ reason: "the model failed" })),
      Cause.fail(new Overloaded({ retryAfterSeconds: 2, reason: "stopping" })),
      Cause.fail(new ChatNotFound({ chatId: 7 })),
      Cause.die(new Error("a bug")),
    ];
    const all = causes.reduce<Cause.Cause<unknown>>(Cause.combine, Cause.empty);
    yield* Effect.provide(logFailure(all), Logger.layer([logger]));
    assert.lengthOf(lines, 3);
    assert.include(lines[0]!, "the model failed");
    assert.include(lines[1]!, "overloaded: the server is stopping");
    assert.include(lines[2]!, "a bug");
  }),
);

it.effect(
  "a span records the message of its failure, but not the cause, which may quote a question",
  () =>
    Effect.gen(function* () {
      const ended: Array<Tracer.NativeSpan> = [];
      const tracer = Tracer.make({
        span: (options) => {
          const span = new Tracer.NativeSpan(options);
          ended.push(span);
          return span;
        },
      });
      const failure = new AnswerUnavailable({ reason: "broken", cause: new Error("secret") });
      yield* Effect.exit(Effect.withTracer(inSpan(Effect.fail(failure), "turn"), tracer));
      const { status } = ended[0]!;
      assert.strictEqual(status._tag, "Ended");
      if (status._tag !== "Ended" || status.exit._tag !== "Failure") return assert.fail();
      const shown = Cause.prettyErrors(status.exit.cause, { includeCauseInStack: true });
      assert.strictEqual(shown[0]!.message, "broken");
      assert.notInclude(shown.map(({ stack }) => stack).join(), "secret");
    }),
);

it("each of the busiest values has its own series, all others share one, and no series decreases", () => {
  const context = Context.make(Metric.MetricRegistry, new Map());
  const count = makeTopLabels(
    context,
    (key) => [Metric.counter("requests", { attributes: { key }, incremental: true })],
    2,
  );
  const before = new Map<string, number>();
  /** Counts this many more events for a value, and returns the total of each series. */
  const after = (value: string, events: number) => {
    for (let n = 0; n < events; n++) count(value, 0, 1);
    const series = Metric.snapshotUnsafe(context).map(
      ({ attributes, state }) => [attributes!["key"]!, (state as { count: number }).count] as const,
    );
    for (const [key, total] of series) {
      assert.isAtLeast(total, before.get(key) ?? 0, key);
      before.set(key, total);
    }
    return Object.fromEntries(series);
  };
  assert.deepStrictEqual(after("a", 10), { a: 10 });
  assert.deepStrictEqual(after("b", 20), { a: 10, b: 20 });
  // Once all labels are taken, a value gets a label only if it is twice as busy as a labelled one.
  assert.deepStrictEqual(after("c", 19), { other: 19, a: 10, b: 20 });
  assert.deepStrictEqual(after("c", 2), { other: 19, c: 2, b: 20 });
  assert.deepStrictEqual(after("a", 99), { other: 118, c: 2, b: 20 });
  for (let n = 0; n < 1000; n++) after(`d${n}`, 1);
  assert.lengthOf(Metric.snapshotUnsafe(context), 3);
});
