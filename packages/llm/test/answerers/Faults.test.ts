/** Sends asks to two models, each of which fails three calls in ten. */
import { type Ask, Asking, type Chatbot, layerParley } from "@parley/core";
import { layerMemoryWith } from "@parley/store-memory";
import { assert, it } from "@effect/vitest";
import { Clock, Effect, Exit, Random, Stream } from "effect";
import { layerLanguageModel } from "../../src/index.ts";
import { chatbotWith } from "../support/chat.ts";
import { driven } from "../support/driven.ts";
import {
  finish,
  httpError,
  modelThat,
  refused,
  type Reply,
  said,
  says,
} from "../support/models.ts";

/** A linear congruential generator, so that the same seed reproduces the same faults. */
const randomFrom = (seed: number) => {
  let state = seed;
  return () => (state = (state * 1_664_525 + 1_013_904_223) % 2 ** 32) / 2 ** 32;
};

const beforeText: ReadonlyArray<Reply> = [
  refused,
  httpError(408),
  httpError(429),
  httpError(429, { headers: { "retry-after": "1" } }),
  httpError(429, { headers: { "retry-after": "60" } }),
  httpError(500),
  httpError(503),
  [{ type: "error", error: "overloaded" }],
  said(),
  says(" "),
  "silence",
];
const withinText: ReadonlyArray<Reply> = [
  said("Hel"),
  [...said("Hel"), { type: "error", error: "overloaded" }, finish("error")],
];

const chatbot: Chatbot = chatbotWith(null);
const asks = 600;
const deadline = 30_000;

const layerWith = (faults: ReadonlyArray<Reply>, seed: number) => {
  const random = randomFrom(seed);
  const calls = { failed: 0, all: 0 };
  const model = (provider: string) =>
    modelThat(() => {
      calls.all++;
      if (random() >= 0.3) return says("Hel", "lo");
      calls.failed++;
      return faults[Math.floor(random() * faults.length)]!;
    }, provider);
  const answerer = layerLanguageModel([model("one"), model("two")]);
  return { calls, layer: layerParley({ store: layerMemoryWith([chatbot]), answerer }) };
};

const ask = (n: number): Ask => ({
  chatId: null,
  question: `Question ${n}?`,
});

/** Runs `askOnce` for every ask; returns the number of successes and the longest duration. */
const load = <E, R>(askOnce: (n: number) => Effect.Effect<unknown, E, R>) =>
  Effect.gen(function* () {
    let longest = 0;
    let succeeded = 0;
    const measure = Effect.fnUntraced(function* (n: number) {
      const startedAt = yield* Clock.currentTimeMillis;
      const exit = yield* Effect.exit(askOnce(n));
      longest = Math.max(longest, (yield* Clock.currentTimeMillis) - startedAt);
      if (Exit.isSuccess(exit)) succeeded++;
    });
    const numbers = Array.from({ length: asks }, (_, n) => n);
    yield* driven(Effect.forEach(numbers, measure, { concurrency: 20, discard: true }), 100);
    return { longest, succeeded };
  }).pipe(Random.withSeed("faults"));

for (const [name, faults, seed, streams] of [
  [
    "99.5% of plain asks are answered despite faults of any kind",
    [...beforeText, ...withinText],
    1,
    false,
  ],
  ["99.5% of streams are answered despite faults before the first delta", beforeText, 2, true],
] as const) {
  it.effect(
    name,
    () => {
      const { calls, layer } = layerWith(faults, seed);
      return Effect.gen(function* () {
        const asking = yield* Asking;
        const { longest, succeeded } = yield* load((n) =>
          streams
            ? Stream.runDrain(asking.stream(chatbot, ask(n)))
            : Effect.asVoid(asking.ask(chatbot, ask(n))),
        );
        assert.isAbove(calls.failed / calls.all, 0.25);
        assert.isAtLeast(succeeded, asks * 0.995);
        assert.isAtMost(longest, deadline + 250);
      }).pipe(Effect.provide(layer));
    },
    120_000,
  );
}
