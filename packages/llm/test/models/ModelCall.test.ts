import { assert, it } from "@effect/vitest";
import { Effect } from "effect";
import { layerLanguageModel, tryModel } from "../../src/index.ts";
import { collect, textOf, usageOf } from "../support/chat.ts";
import { driven } from "../support/driven.ts";
import { finish, httpError, modelThat, type Reply, said, says } from "../support/models.ts";

const reasonings = [
  ["<think>Hm.</think>\n\nHello"],
  ["<th", "ink>Hm. <", "/think", ">\n", "\nHel", "lo"],
  ["\n<think>\n</think>\nHello"],
  ["\n", " \u0085Hel", "lo"],
  [..."<think>a < b</thin </think>Hello"],
  ["<thought>Hm.</thought>Hello"],
  ["<Thinking>Hm.</thinking> Hello"],
  ["<think>One.</think><thought>Two.</thought>Hello"],
  ["<seed:think>Hm.</seed:think>Hello"],
  ["<reasoning>Hm.</reasoning>Hello"],
  [..."[THINK]Hm.[/THINK]Hello"],
  ["◁think▷Hm.◁/think▷Hello"],
  ["<|begin_of_thought|>Hm.<|end_of_thought|>Hello"],
  [..."<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>Hello"],
];
const quotations = [
  ["Write <think>Hm.</think> before the answer."],
  ["<", "div>Hello</div>"],
  ["[1] See <thinking>."],
  ["[", "x] done"],
  ["`<think>` opens it."],
  ["<"],
  ["[THIN"],
];
for (const [pieces, answer] of [
  ...reasonings.map((pieces) => [pieces, "Hello"] as const),
  ...quotations.map((pieces) => [pieces, pieces.join("")] as const),
]) {
  it.effect(
    `an answer is shown without white space and reasoning at its beginning: ${JSON.stringify(pieces)}`,
    () =>
      Effect.gen(function* () {
        assert.strictEqual(textOf(yield* collect("Hi?")), answer);
      }).pipe(Effect.provide(layerLanguageModel(modelThat(() => says(...pieces))))),
  );
}

it.effect(
  "an answer is complete shortly after its finish reason, even if the stream stays open",
  () =>
    Effect.gen(function* () {
      const parts = yield* driven(collect("Hi?"));
      assert.strictEqual(textOf(parts), "Hello");
      assert.isAtMost(usageOf(parts).latencyMillis, 1000);
    }).pipe(
      Effect.provide(
        layerLanguageModel(modelThat(() => [...said("Hello"), finish("stop"), "silence"])),
      ),
    ),
);

it.effect("layerLanguageModel reads the model objects of earlier versions of the AI SDK", () => {
  const parts = [
    { type: "text-delta", id: "1", delta: "Hello" },
    { type: "finish", finishReason: "stop", usage: { inputTokens: 3, outputTokens: 4 } },
  ];
  const stream = () =>
    new ReadableStream({
      start: (controller) => {
        for (const part of parts) controller.enqueue(part);
        controller.close();
      },
    });
  const model = { provider: "old", modelId: "old-1", doStream: async () => ({ stream: stream() }) };
  return Effect.gen(function* () {
    const answer = yield* collect("Hi?");
    assert.strictEqual(textOf(answer), "Hello");
    assert.deepInclude(usageOf(answer), { promptTokens: 3, completionTokens: 4 });
  }).pipe(Effect.provide(layerLanguageModel(model)));
});

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
