import type { AnswerPart } from "@parley/core";
import { assert, describe, it } from "@effect/vitest";
import { Clock, Effect, Exit, Fiber } from "effect";
import { TestClock } from "effect/testing";
import { layerLanguageModel } from "../../src/index.ts";
import { collect, textOf } from "../support/chat.ts";
import { driven, settle } from "../support/driven.ts";
import { httpError, modelThat, refused, type Reply, said, says } from "../support/models.ts";

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

/** Two asks of a provider that fails every call open its circuit. */
const opened = driven(
  Effect.all([Effect.exit(collect("Hi?")), Effect.exit(collect("Hi?"))], { concurrency: 2 }),
);

/** An ask, and how long it took by the test clock. */
const timed = Effect.gen(function* () {
  const startedAt = yield* Clock.currentTimeMillis;
  const exit = yield* Effect.exit(collect("Hi?"));
  return { exit, millis: (yield* Clock.currentTimeMillis) - startedAt };
});
const failsAtOnce = Effect.map(timed, ({ exit, millis }) => {
  assert.isTrue(Exit.isFailure(exit));
  assert.strictEqual(millis, 0);
});

describe("the circuit of a provider", () => {
  for (const [name, reply] of [
    ["refuse connections", refused],
    ["reset connections", reset],
    ["answer with 503", httpError(503)],
    ["refuse the key", httpError(401)],
  ] as const) {
    it.effect(`when all providers ${name}, asks fail at once but for those that try them`, () => {
      const [one, two] = [changing("one", reply), changing("two", reply)];
      return Effect.gen(function* () {
        while (one.calls() < 10) yield* driven(Effect.exit(collect("Hi?")));
        const before = [one.calls(), two.calls()];
        const slow: Array<number> = [];
        for (let n = 0; n < 100; n++) {
          const { exit, millis } = yield* driven(timed);
          assert.isTrue(Exit.isFailure(exit));
          if (millis > 0) slow.push(millis);
          yield* TestClock.adjust(300);
        }
        // Tried after 2, 4, 8 and 16 seconds.
        assert.isAtMost(one.calls() - before[0]!, 4);
        assert.isAtMost(two.calls() - before[1]!, 4);
        assert.isAtMost(slow.length, 8);
        assert.isTrue(slow.every((millis) => millis < 300));
        two.now.reply = says("back");
        yield* TestClock.adjust("30 seconds");
        assert.strictEqual(textOf(yield* driven(collect("Hi?"))), "back");
      }).pipe(Effect.provide(layerLanguageModel([one.model, two.model])));
    });
  }

  it.effect("opens for silent providers, and no other ask waits from then on", () => {
    const silent = [modelThat(() => "silence", "one"), modelThat(() => "silence", "two")] as const;
    return Effect.gen(function* () {
      const asks = Array.from({ length: 20 }, () => Effect.exit(collect("Hi?")));
      yield* driven(Effect.all(asks, { concurrency: 20 }), 250);
      for (let n = 0; n < 5; n++) yield* failsAtOnce;
    }).pipe(Effect.provide(layerLanguageModel(silent, { idleTimeout: "4 seconds" })));
  });

  it.effect(
    "is tried by one ask, while the others go on without, and closes once an answer begins",
    () => {
      const one = changing("one", httpError(503));
      return Effect.gen(function* () {
        yield* opened;
        assert.strictEqual(one.calls(), 10);
        one.now.reply = "silence";
        yield* TestClock.adjust("2 seconds");
        const trying = yield* Effect.forkChild(Effect.exit(collect("Hi?")));
        yield* settle;
        assert.strictEqual(one.calls(), 11);
        yield* failsAtOnce;
        yield* failsAtOnce;
        yield* TestClock.adjust("21 seconds");
        yield* settle;
        assert.isTrue(Exit.isFailure(yield* Fiber.join(trying)));
        // After a failed try it stays open for twice as long.
        one.now.reply = says("back");
        yield* TestClock.adjust("2 seconds");
        yield* failsAtOnce;
        yield* TestClock.adjust("2 seconds");
        assert.strictEqual(textOf(yield* collect("Hi?")), "back");
        const parts = yield* Effect.all([collect("a"), collect("b")], { concurrency: 2 });
        assert.deepStrictEqual(parts.map(textOf), ["back", "back"]);
      }).pipe(Effect.provide(layerLanguageModel(one.model)));
    },
  );

  it.effect("opens for a provider that breaks off every answer", () => {
    const [one, two] = [changing("one", said("Hel")), changing("two", says("whole"))];
    const answeredBy = Effect.map(driven(collect("Hi?")), providerOf);
    return Effect.gen(function* () {
      for (let n = 0; n < 12; n++) assert.strictEqual(yield* answeredBy, "two");
      assert.strictEqual(one.calls(), 10);
      one.now.reply = says("whole");
      yield* TestClock.adjust("2 seconds");
      assert.strictEqual(yield* answeredBy, "one");
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
        yield* Fiber.interrupt(asked);
      }
      one.now.reply = says("Hello");
      assert.strictEqual(textOf(yield* collect("Hi?")), "Hello");
    }).pipe(Effect.provide(layerLanguageModel(one.model)));
  });
});
