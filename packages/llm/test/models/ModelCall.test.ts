import { assert, it } from "@effect/vitest";
import { Effect } from "effect";
import { layerLanguageModel, tryModel } from "../../src/index.ts";
import { collect, textOf } from "../support/chat.ts";
import { driven } from "../support/driven.ts";
import { httpError, modelThat, type Reply, says } from "../support/models.ts";

for (const pieces of [
  ["<think>Hm.</think>\n\nHello"],
  ["<th", "ink>Hm. <", "/think", ">\n", "\nHel", "lo"],
  ["\n<think>\n</think>\nHello"],
  [..."<think>a < b</thin </think>Hello"],
  ["Hello<think>Was that polite?</think>"],
]) {
  it.effect(
    `reasoning that a model sends as text is left out of the answer: ${JSON.stringify(pieces)}`,
    () =>
      Effect.gen(function* () {
        assert.strictEqual(textOf(yield* collect("Hi?")), "Hello");
      }).pipe(Effect.provide(layerLanguageModel(modelThat(() => says(...pieces))))),
  );
}

it.effect("tryModel succeeds if the model answers", () => tryModel(modelThat(() => says("pong"))));

const dead: Record<string, Reply> = { "rejects the key": httpError(401), "is silent": "silence" };
for (const [name, reply] of Object.entries(dead)) {
  it.effect(`tryModel fails if the model ${name}, and aborts the request`, () => {
    const model = modelThat(() => reply);
    return Effect.gen(function* () {
      yield* driven(Effect.flip(tryModel(model)), 1000);
      assert.isTrue(model.doStreamCalls[0]!.abortSignal!.aborted);
    });
  });
}
