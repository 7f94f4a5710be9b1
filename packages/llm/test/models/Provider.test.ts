import { assert, it } from "@effect/vitest";
import { Clock, Effect, Exit, Fiber, Metric } from "effect";
import { TestClock } from "effect/testing";
import { layerLanguageModel } from "../../src/index.ts";
import { collect, textOf, usageOf } from "../support/chat.ts";
import { driven, settle } from "../support/driven.ts";
import { httpError, modelThat, type Reply, said, says } from "../support/models.ts";

/** A model that replies with `now.reply`, which a test can change. */
const changing = (provider: string, reply: Reply) => {
  const now = { reply };
  const model = modelThat(() => now.reply, provider);
  return { model, now, calls: () => model.doStreamCalls.length };
};

/** Asks this many questions at once, and waits until each has succeeded or failed. */
const askAtOnce = (questions: number) =>
  driven(
    Effect.all(
      Array.from({ length: questions }, () => Effect.exit(collect("Hi?"))),
      { concurrency: "unbounded" },
    ),
  );

const circuitOf = Effect.map(
  Metric.snapshot,
  (metrics) =>
    metrics
      .flatMap(({ id, state }) => (id === "parley.model.circuit" ? [state] : []))
      .map((state) => ("value" in state ? state.value : null))[0],
);

const failsAtOnce = Effect.gen(function* () {
  const startedAt = yield* Clock.currentTimeMillis;
  yield* Effect.flip(collect("Hi?"));
  assert.strictEqual(yield* Clock.currentTimeMillis, startedAt);
});

it.effect(
  "a provider's circuit opens if the provider stays silent, and later asks fail at once",
  () => {
    const silent = [modelThat(() => "silence", "one"), modelThat(() => "silence", "two")] as const;
    return Effect.gen(function* () {
      const asks = Array.from({ length: 20 }, () => Effect.exit(collect("Hi?")));
      yield* driven(Effect.all(asks, { concurrency: 20 }), 250);
      for (let n = 0; n < 5; n++) yield* failsAtOnce;
    }).pipe(Effect.provide(layerLanguageModel(silent, { idleTimeout: "4 seconds" })));
  },
);

it.effect(
  "a provider's circuit lets one ask try the provider, and closes once that ask is answered",
  () => {
    const one = changing("one", httpError(503));
    return Effect.gen(function* () {
      yield* askAtOnce(10);
      assert.strictEqual(yield* circuitOf, 2);
      assert.strictEqual(one.calls(), 10);
      one.now.reply = "silence";
      yield* TestClock.adjust("2 seconds");
      const trial = yield* Effect.forkChild(Effect.exit(collect("Hi?")));
      yield* settle;
      assert.strictEqual(one.calls(), 11);
      yield* failsAtOnce;
      yield* failsAtOnce;
      yield* TestClock.adjust("21 seconds");
      yield* settle;
      assert.isTrue(Exit.isFailure(yield* Fiber.join(trial)));
      // After a failed trial the circuit stays open for twice as long.
      one.now.reply = says("back");
      yield* TestClock.adjust("2 seconds");
      yield* failsAtOnce;
      yield* TestClock.adjust("2 seconds");
      assert.strictEqual(textOf(yield* collect("Hi?")), "back");
      const parts = yield* Effect.all([collect("a"), collect("b")], { concurrency: 2 });
      assert.deepStrictEqual(parts.map(textOf), ["back", "back"]);
      assert.strictEqual(yield* circuitOf, 0);
    }).pipe(
      Effect.provide(layerLanguageModel(one.model)),
      Effect.provideService(Metric.MetricRegistry, new Map()),
    );
  },
);

it.effect("a provider's circuit opens if the provider cuts off every answer", () => {
  const [one, two] = [changing("one", said("Hel")), changing("two", says("whole"))];
  const answeredBy = Effect.map(driven(collect("Hi?")), (parts) => usageOf(parts).provider);
  return Effect.gen(function* () {
    for (let n = 0; n < 12; n++) assert.strictEqual(yield* answeredBy, "two");
    assert.strictEqual(one.calls(), 10);
    one.now.reply = says("whole");
    yield* TestClock.adjust("2 seconds");
    assert.strictEqual(yield* answeredBy, "one");
  }).pipe(Effect.provide(layerLanguageModel([one.model, two.model])));
});

for (const [name, status, calls] of [
  ["opens if the provider rejects the key", 401, 10],
  ["stays closed if the provider rejects questions as bad requests", 400, 30],
] as const) {
  it.effect(`a provider's circuit ${name}`, () => {
    const provider = changing("one", httpError(status));
    return Effect.gen(function* () {
      for (let n = 0; n < 30; n++) yield* Effect.exit(collect("Hi?"));
      assert.strictEqual(provider.calls(), calls);
    }).pipe(Effect.provide(layerLanguageModel(provider.model)));
  });
}

it.effect(
  "a provider's circuit counts a question's failed attempts once, and opens at the tenth failed question",
  () => {
    const one = changing("one", httpError(503));
    return Effect.gen(function* () {
      for (let n = 0; n < 9; n++) yield* askAtOnce(1);
      assert.strictEqual(one.calls(), 9 * 5);
      assert.strictEqual(yield* circuitOf, 0);
      yield* askAtOnce(1);
      assert.strictEqual(yield* circuitOf, 2);
      assert.strictEqual(one.calls(), 9 * 5 + 1);
    }).pipe(
      Effect.provide(layerLanguageModel(one.model)),
      Effect.provideService(Metric.MetricRegistry, new Map()),
    );
  },
);

it.effect("a provider's circuit stays closed if clients cancel their asks", () => {
  const provider = changing("one", "silence");
  return Effect.gen(function* () {
    for (let n = 0; n < 15; n++) {
      const fiber = yield* Effect.forkChild(Effect.exit(collect("Hi?")));
      yield* settle;
      yield* Fiber.interrupt(fiber);
    }
    provider.now.reply = says("Hello");
    assert.strictEqual(textOf(yield* collect("Hi?")), "Hello");
  }).pipe(Effect.provide(layerLanguageModel(provider.model)));
});
