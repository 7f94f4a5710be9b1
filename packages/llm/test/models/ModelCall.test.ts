/** Models that send their reasoning as text. */
import { assert, describe, it } from "@effect/vitest";
import { Effect, Stream } from "effect";
import { layerLanguageModel } from "../../src/index.ts";
import { ask, collect, textOf } from "../support/chat.ts";
import { driven } from "../support/driven.ts";
import { finish, modelThat, said, says } from "../support/models.ts";

const deltas = Stream.runCollect(ask("Hi?")).pipe(
  Effect.map((parts) => parts.map((part) => (part._tag === "Delta" ? part.text : part._tag))),
);

describe("reasoning that is sent as text", () => {
  for (const pieces of [
    ["<think>Hm.</think>\n\nHello"],
    ["<think>Hm.", " So?</think>Hello"],
    ["<th", "ink>Hm. <", "/think", ">\n", "\nHel", "lo"],
    ["\n<think>\n</think>\nHello"],
    [..."<think>a < b</thin </think>Hello"],
    ["Hello<think>Was that polite?</think>"],
  ]) {
    it.effect(`is left out of the answer: ${JSON.stringify(pieces)}`, () =>
      Effect.gen(function* () {
        const parts = yield* collect("Hi?");
        assert.strictEqual(textOf(parts), "Hello");
        assert.isTrue(parts.every(({ _tag }) => _tag !== "Restart"));
      }).pipe(Effect.provide(layerLanguageModel(modelThat(() => says(...pieces))))),
    );
  }

  it.effect("is no answer when it does not end", () => {
    const model = modelThat(() => [...said("<think>Hm. ", "So?"), finish("length")]);
    return Effect.gen(function* () {
      const error = yield* driven(Effect.flip(collect("Hi?")));
      assert.include(`${"reason" in error && error.reason}`, "on reasoning");
      assert.strictEqual(model.doStreamCalls.length, 1);
    }).pipe(Effect.provide(layerLanguageModel(model)));
  });

  it.effect(
    "of a model whose prompt holds the opening tag is taken back, and later held back",
    () => {
      const answers = [
        says("Hm. ", "So?</thi", "nk>Hel", "lo"),
        says("Hm.", "</think>Bye"),
        says("A", "B"),
      ];
      const model = modelThat((n) => answers[n] ?? says("C", "D"));
      return Effect.gen(function* () {
        assert.deepStrictEqual(yield* deltas, ["Hm. ", "So?", "Restart", "Hel", "lo", "Usage"]);
        assert.deepStrictEqual(yield* deltas, ["Bye", "Usage"]);
        // An answer without a closing tag comes whole, and the next as it is made.
        assert.deepStrictEqual(yield* deltas, ["AB", "Usage"]);
        assert.deepStrictEqual(yield* deltas, ["C", "D", "Usage"]);
      }).pipe(Effect.provide(layerLanguageModel(model)));
    },
  );

  it.effect("does not hide what only begins like a tag", () =>
    Effect.gen(function* () {
      assert.strictEqual(textOf(yield* collect("Hi?")), "1 < 2 </t");
    }).pipe(Effect.provide(layerLanguageModel(modelThat(() => says("1 <", " 2 ", "</t"))))),
  );
});
