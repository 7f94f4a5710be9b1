import { CurrentAsk } from "@parley/core/ports";
import { assert, it } from "@effect/vitest";
import { Clock, Effect, Exit, Fiber, Metric } from "effect";
import { TestClock } from "effect/testing";
import { layerLanguageModel } from "../../src/index.ts";
import { collect, textOf } from "../support/chat.ts";
import { driven, settle } from "../support/driven.ts";
import { finish, httpError, modelThat, type Reply, said, says } from "../support/models.ts";

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

const filtered: Reply = [...said("Hel"), finish("content-filter")];
for (const [name, reply] of Object.entries({
  "are cut off": said("Hel"),
  "are empty": says(),
  "are stopped by a content filter": filtered,
  "are rejected as bad requests": httpError(400),
  "are rejected with the key": httpError(401),
})) {
  it.effect(`a provider's circuit stays closed if all answers ${name}`, () => {
    const [one, two] = [changing("one", reply), changing("two", says("whole"))];
    return Effect.gen(function* () {
      for (let n = 0; n < 12; n++) yield* Effect.exit(driven(collect("Hi?")));
      assert.strictEqual(one.calls(), 12);
    }).pipe(Effect.provide(layerLanguageModel([one.model, two.model])));
  });
}

/** Asks as the holder of this key, as this visitor. */
const asking = (apiKeyId: string, visitor: string | null = null) =>
  Effect.provideService(Effect.exit(driven(collect("Hi?"))), CurrentAsk, {
    ...CurrentAsk.defaultValue(),
    apiKeyId,
    visitor,
  });

it.effect(
  "a key whose questions fail is paused alone, and keeps no other key from the model",
  () => {
    const one = changing("one", httpError(503));
    return Effect.gen(function* () {
      for (let n = 0; n < 12; n++) yield* asking("bad");
      const calls = one.calls();
      yield* asking("bad");
      assert.strictEqual(one.calls(), calls);
      one.now.reply = says("Hello");
      assert.isTrue(Exit.isSuccess(yield* asking("good")));
      assert.isTrue(Exit.isFailure(yield* asking("bad")));
      // Visitors of one key count each, unlike the users of a key that is no visitor's.
      one.now.reply = httpError(503);
      for (let n = 0; n < 12; n++) yield* asking("site", `visitor-${n % 2}`);
      one.now.reply = says("Hello");
      assert.isTrue(Exit.isSuccess(yield* asking("site", "visitor-2")));
    }).pipe(Effect.provide(layerLanguageModel(one.model, { retries: 0 })));
  },
);

for (const [name, askAs] of Object.entries({
  keys: (n: number) => asking(`key-${n}`),
  visitors: (n: number) => asking("site", `visitor-${n}`),
})) {
  it.effect(
    `a provider that fails ten questions in a row of three ${name} is paused for all`,
    () => {
      const one = changing("one", httpError(503));
      return Effect.gen(function* () {
        for (let n = 0; n < 10; n++) yield* askAs(n % 3);
        one.now.reply = says("Hello");
        assert.isTrue(Exit.isFailure(yield* asking("other")));
        assert.strictEqual(one.calls(), 10);
        yield* TestClock.adjust("2 seconds");
        assert.isTrue(Exit.isSuccess(yield* asking("other")));
      }).pipe(Effect.provide(layerLanguageModel(one.model, { retries: 0 })));
    },
  );
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
