import { AnswerUnavailable, type AnswerPart } from "@parley/core";
import { assert, describe, it } from "@effect/vitest";
import { Clock, Duration, Effect, Exit } from "effect";
import { TestClock } from "effect/testing";
import { layerLanguageModel } from "../src/index.ts";
import { collect, textOf } from "./chat.ts";
import { driven, settle } from "./driven.ts";
import { httpError, modelThat, promptOf, type Reply, said, says } from "./models.ts";

const providerOf = (parts: ReadonlyArray<AnswerPart>) => {
  const last = parts.at(-1);
  return last?._tag === "Usage" ? last.usage.provider : null;
};

/** A model that does what is in `reply` now. */
const changing = (provider: string, reply: Reply) => {
  const now = { reply };
  const model = modelThat(() => now.reply, provider);
  return { model, now, calls: () => model.doStreamCalls.length };
};

const reset = Object.assign(new TypeError("terminated"), {
  cause: Object.assign(new Error(), { code: "ECONNRESET" }),
});

const refused = Object.assign(new TypeError("fetch failed"), {
  cause: Object.assign(new Error(), { code: "ECONNREFUSED" }),
});

/** An ask, and how long it took by the test clock. */
const timed = Effect.gen(function* () {
  const startedAt = yield* Clock.currentTimeMillis;
  const exit = yield* Effect.exit(collect("Hi?"));
  return { exit, millis: (yield* Clock.currentTimeMillis) - startedAt };
});

describe("the circuit of a provider", () => {
  for (const [name, reply] of [
    ["refuse connections", refused],
    ["reset connections", reset],
    ["answer with 503", httpError(503)],
    ["refuse the key", httpError(401)],
  ] as const) {
    it.effect(`when all providers ${name}, asks fail at once within ten seconds`, () => {
      const [one, two] = [changing("one", reply), changing("two", reply)];
      return Effect.gen(function* () {
        // As many as ten askers at a time, who ask again a second after they failed.
        const asker = Effect.gen(function* () {
          while ((yield* Clock.currentTimeMillis) < 10_000) {
            yield* Effect.exit(collect("Hi?"));
            yield* Effect.sleep("1 second");
          }
        });
        yield* driven(
          Effect.all(
            Array.from({ length: 10 }, () => asker),
            { concurrency: 10 },
          ),
          100,
        );
        const calls = [one.calls(), two.calls()] as const;
        // Over a minute, so that many come at the time of a probe.
        for (let n = 0; n < 200; n++) {
          const { exit, millis } = yield* timed;
          assert.isTrue(Exit.isFailure(exit));
          assert.strictEqual(millis, 0);
          yield* TestClock.adjust(300);
          yield* settle;
        }
        for (const [{ model }, before] of [
          [one, calls[0]],
          [two, calls[1]],
        ] as const) {
          const since = model.doStreamCalls
            .slice(before)
            .map((_, n) => promptOf(model, before + n));
          assert.isAtLeast(since.length, 2);
          for (const prompt of since) {
            assert.deepStrictEqual(prompt, [{ role: "user", content: "ping" }]);
          }
        }
        const error = yield* Effect.flip(collect("Hi?"));
        assert.instanceOf(error, AnswerUnavailable);
        assert.isFalse(error.passing);
        two.now.reply = says("back");
        yield* TestClock.adjust("30 seconds");
        yield* settle;
        assert.strictEqual(textOf(yield* collect("Hi?")), "back");
      }).pipe(Effect.provide(layerLanguageModel([one.model, two.model])));
    });
  }

  it.effect("opens for silent providers too, and no ask waits from then on", () => {
    const silent = [modelThat(() => "silence", "one"), modelThat(() => "silence", "two")] as const;
    return Effect.gen(function* () {
      const later: Array<number> = [];
      const asker = Effect.gen(function* () {
        while ((yield* Clock.currentTimeMillis) < 20_000) {
          const startedAt = yield* Clock.currentTimeMillis;
          const { millis } = yield* timed;
          if (startedAt >= 10_000) later.push(millis);
          yield* Effect.sleep("1 second");
        }
      });
      yield* driven(
        Effect.all(
          Array.from({ length: 20 }, () => asker),
          { concurrency: 20 },
        ),
        250,
      );
      assert.isAtLeast(later.length, 150);
      assert.deepStrictEqual(
        later.filter((millis) => millis > 0),
        [],
      );
    }).pipe(Effect.provide(layerLanguageModel(silent, { silence: "4 seconds" })));
  });

  it.effect("is probed again when a timer was early", () => {
    const one = changing("one", httpError(503));
    return Effect.gen(function* () {
      const clock = yield* Clock.Clock;
      const early: Clock.Clock = Object.create(clock, {
        sleep: {
          value: (duration: Duration.Duration) =>
            clock.sleep(Duration.millis(Math.max(0, Duration.toMillis(duration) - 2))),
        },
      });
      yield* Effect.gen(function* () {
        for (let n = 0; n < 4; n++) yield* driven(Effect.exit(collect("Hi?")), 10);
        assert.strictEqual(one.calls(), 10);
        one.now.reply = says("back");
        yield* TestClock.adjust("2 seconds");
        yield* settle;
        yield* TestClock.adjust("1 second");
        yield* settle;
        assert.strictEqual(textOf(yield* collect("Hi?")), "back");
      }).pipe(
        Effect.provide(layerLanguageModel(one.model)),
        Effect.provideService(Clock.Clock, early),
      );
    });
  });

  it.effect("is probed beside the asks, with a text of our own, and lets all through then", () => {
    const one = changing("one", httpError(503));
    const failsAtOnce = Effect.gen(function* () {
      const { exit, millis } = yield* timed;
      assert.isTrue(Exit.isFailure(exit));
      assert.strictEqual(millis, 0);
    });
    return Effect.gen(function* () {
      for (let n = 0; n < 4; n++) yield* driven(Effect.exit(collect("Hi?")), 10);
      assert.strictEqual(one.calls(), 10);
      one.now.reply = "silence";
      // Asks at the very time of the probe and during it.
      yield* TestClock.adjust("2 seconds");
      yield* Effect.all([failsAtOnce, failsAtOnce, failsAtOnce], { concurrency: 3 });
      yield* settle;
      assert.strictEqual(one.calls(), 11);
      assert.deepStrictEqual(promptOf(one.model, 10), [{ role: "user", content: "ping" }]);
      assert.strictEqual(one.model.doStreamCalls[10]!.maxOutputTokens, 1);
      yield* TestClock.adjust("19 seconds");
      yield* failsAtOnce;
      assert.strictEqual(one.calls(), 11);
      assert.isFalse(one.model.doStreamCalls[10]!.abortSignal!.aborted);
      yield* TestClock.adjust("1 seconds");
      yield* settle;
      assert.isTrue(one.model.doStreamCalls[10]!.abortSignal!.aborted);
      // After a failed probe it stays open for twice as long.
      one.now.reply = says("back");
      yield* TestClock.adjust("3999 millis");
      yield* settle;
      yield* failsAtOnce;
      assert.strictEqual(one.calls(), 11);
      yield* TestClock.adjust("1 millis");
      yield* settle;
      assert.strictEqual(one.calls(), 12);
      const parts = yield* driven(
        Effect.all([collect("a"), collect("b"), collect("c")], { concurrency: 3 }),
      );
      assert.deepStrictEqual(parts.map(textOf), ["back", "back", "back"]);
      assert.strictEqual(one.calls(), 15);
    }).pipe(Effect.provide(layerLanguageModel(one.model)));
  });

  for (const [name, reply] of [
    ["finds fault with it", httpError(400)],
    ["has no text in so few tokens", says()],
    ["answers it", says("pong")],
  ] as const) {
    it.effect(`closes when the provider ${name}`, () => {
      const one = changing("one", httpError(503));
      return Effect.gen(function* () {
        for (let n = 0; n < 4; n++) yield* driven(Effect.exit(collect("Hi?")), 10);
        one.now.reply = reply;
        yield* TestClock.adjust("2 seconds");
        yield* settle;
        one.now.reply = says("Hello");
        assert.strictEqual(textOf(yield* collect("Hi?")), "Hello");
      }).pipe(Effect.provide(layerLanguageModel(one.model)));
    });
  }

  it.effect("of a provider that breaks off every answer opens too", () => {
    const [one, two] = [changing("one", said("Hel")), changing("two", says("whole"))];
    return Effect.gen(function* () {
      for (let n = 0; n < 10; n++) yield* driven(Effect.exit(collect("Hi?")));
      assert.strictEqual(providerOf(yield* driven(collect("Hi?"))), "two");
      one.now.reply = says("whole");
      yield* TestClock.adjust("2 seconds");
      yield* settle;
      assert.strictEqual(providerOf(yield* driven(collect("Hi?"))), "one");
      assert.strictEqual(providerOf(yield* driven(collect("Hi?"))), "one");
    }).pipe(Effect.provide(layerLanguageModel([one.model, two.model])));
  });

  it.effect("stays closed when questions, not the provider, are at fault", () => {
    const one = changing("one", httpError(400));
    return Effect.gen(function* () {
      for (let n = 0; n < 30; n++) yield* Effect.exit(collect("Hi?"));
      assert.strictEqual(one.calls(), 30);
    }).pipe(Effect.provide(layerLanguageModel(one.model)));
  });

  it.effect("stays closed when asks are cancelled", () => {
    const one = changing("one", "silence");
    return Effect.gen(function* () {
      for (let n = 0; n < 15; n++) {
        const asked = yield* Effect.forkChild(Effect.exit(collect("Hi?")));
        yield* settle;
        asked.interruptUnsafe();
        yield* settle;
      }
      assert.strictEqual(one.calls(), 15);
      one.now.reply = says("Hello");
      assert.strictEqual(textOf(yield* collect("Hi?")), "Hello");
    }).pipe(Effect.provide(layerLanguageModel(one.model)));
  });
});
