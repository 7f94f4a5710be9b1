import { assert, it } from "@effect/vitest";
import { Effect, Option, Tracer } from "effect";
import { sampledBy } from "../../src/layers/Observability.ts";

const tracer = Tracer.make({ span: (options) => new Tracer.NativeSpan(options) });

/** How many of a thousand traces are sampled, each a span with a child, below a parent if there is one. */
const share = Effect.fnUntraced(function* (
  sampler: string | undefined,
  argument?: string,
  parent?: (traceId: string) => Tracer.AnySpan,
) {
  const sampled = sampledBy(tracer, sampler, argument);
  if (sampled === null) return null;
  let count = 0;
  for (let n = 0; n < 1000; n++) {
    const traceId = crypto.randomUUID().replaceAll("-", "");
    const options = parent && { parent: parent(traceId) };
    const root = yield* Effect.withTracer(Effect.makeSpan("root", options), sampled);
    const child = yield* Effect.withTracer(Effect.makeSpan("child", { parent: root }), sampled);
    assert.strictEqual(child.sampled, root.sampled);
    if (parent) assert.strictEqual(root.traceId, Option.getOrThrow(root.parent).traceId);
    if (root.sampled) count++;
  }
  return count;
});

it.effect("spans are sampled as OTEL_TRACES_SAMPLER says, and a trace as a whole", () =>
  Effect.gen(function* () {
    const within = (sampled: boolean) => (traceId: string) =>
      Tracer.externalSpan({ traceId, spanId: "b7ad6b7169203331", sampled });
    for (const [sampler, argument, root, below, belowUnsampled] of [
      [undefined, undefined, 1000, 1000, 0],
      ["always_on", undefined, 1000, 1000, 1000],
      ["always_off", undefined, 0, 0, 0],
      ["parentbased_always_on", undefined, 1000, 1000, 0],
      ["parentbased_always_off", undefined, 0, 1000, 0],
      ["traceidratio", undefined, 1000, 1000, 1000],
      ["traceidratio", "0", 0, 0, 0],
      ["parentbased_traceidratio", "0", 0, 1000, 0],
    ] as const) {
      assert.strictEqual(yield* share(sampler, argument), root, sampler);
      assert.strictEqual(yield* share(sampler, argument, within(true)), below, sampler);
      assert.strictEqual(yield* share(sampler, argument, within(false)), belowUnsampled, sampler);
    }
    const half = yield* share("parentbased_traceidratio", "0.5");
    assert.isAbove(half!, 350);
    assert.isBelow(half!, 650);
    for (const [sampler, argument] of [
      ["jaeger_remote", undefined],
      ["traceidratio", "2"],
      ["traceidratio", "half"],
    ] as const) {
      assert.isNull(yield* share(sampler, argument), sampler);
    }
  }),
);
