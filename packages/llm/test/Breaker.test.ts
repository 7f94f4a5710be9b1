import { AnswerUnavailable, type AnswerPart } from "@parley/core";
import { assert, describe, it } from "@effect/vitest";
import { Clock, Effect, Exit } from "effect";
import { TestClock } from "effect/testing";
import { layerLanguageModel } from "../src/index.ts";
import { collect, textOf } from "./chat.ts";
import { driven, settle } from "./driven.ts";
import { httpError, modelThat, type Reply, said, says } from "./models.ts";

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

const refused = Object.assign(new TypeError("fetch failed"), {
  cause: Object.assign(new Error(), { code: "ECONNREFUSED" }),
});

/** An ask, and how long it took by the test clock and by the real one. */
const timed = Effect.gen(function* () {
  const startedAt = yield* Clock.currentTimeMillis;
  const really = performance.now();
  const exit = yield* Effect.exit(collect("Hi?"));
  return {
    exit,
    millis: (yield* Clock.currentTimeMillis) - startedAt,
    realMillis: performance.now() - really,
  };
});

describe("the circuit of a provider", () => {
  for (const [name, reply] of [
    ["refuse connections", refused],
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
        const calls = one.calls() + two.calls();
        const times: Array<number> = [];
        for (let n = 0; n < 21; n++) {
          const { exit, millis, realMillis } = yield* timed;
          assert.isTrue(Exit.isFailure(exit));
          assert.strictEqual(millis, 0);
          times.push(realMillis);
        }
        // The median: a busy machine may take its time for one of them.
        assert.isBelow(times.sort((a, b) => a - b)[10]!, 50);
        assert.strictEqual(one.calls() + two.calls(), calls);
        const error = yield* Effect.flip(collect("Hi?"));
        assert.instanceOf(error, AnswerUnavailable);
        assert.isFalse(error.passing);
      }).pipe(Effect.provide(layerLanguageModel([one.model, two.model])));
    });
  }

  it.effect("opens for silent providers too, and only probes wait from then on", () => {
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
      assert.isAtMost(later.filter((millis) => millis > 0).length, 6);
    }).pipe(Effect.provide(layerLanguageModel(silent, { silence: "4 seconds" })));
  });

  it.effect("lets one call through now and then, and all when that one succeeds", () => {
    const one = changing("one", httpError(503));
    return Effect.gen(function* () {
      for (let n = 0; n < 4; n++) yield* driven(Effect.exit(collect("Hi?")));
      const calls = one.calls();
      assert.strictEqual(calls, 10);
      yield* TestClock.adjust("2 seconds");
      yield* driven(Effect.all([timed, timed, timed], { concurrency: 3 }));
      assert.strictEqual(one.calls(), calls + 1);
      // After a failed probe it stays open for twice as long.
      yield* TestClock.adjust("3 seconds");
      yield* Effect.exit(collect("Hi?"));
      assert.strictEqual(one.calls(), calls + 1);
      yield* TestClock.adjust("1 seconds");
      one.now.reply = says("back");
      assert.strictEqual(textOf(yield* driven(collect("Hi?"))), "back");
      const parts = yield* driven(
        Effect.all([collect("a"), collect("b"), collect("c")], { concurrency: 3 }),
      );
      assert.deepStrictEqual(parts.map(textOf), ["back", "back", "back"]);
    }).pipe(Effect.provide(layerLanguageModel(one.model)));
  });

  it.effect("of a provider that breaks off every answer opens too", () => {
    const [one, two] = [changing("one", said("Hel")), changing("two", says("whole"))];
    return Effect.gen(function* () {
      for (let n = 0; n < 10; n++) yield* driven(Effect.exit(collect("Hi?")));
      assert.strictEqual(providerOf(yield* driven(collect("Hi?"))), "two");
      one.now.reply = says("whole");
      yield* TestClock.adjust("2 seconds");
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
