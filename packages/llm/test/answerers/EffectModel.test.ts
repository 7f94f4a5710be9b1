import { assert, it } from "@effect/vitest";
import { Answerer, AnswerUnavailable, CurrentAsk } from "@parley/core/ports";
import { Context, Duration, Effect, Layer, Schema, Stream } from "effect";
import { AiError, LanguageModel, Model, type Response, Tool, Toolkit } from "effect/ai";
import { layerEffectLanguageModel } from "../../src/index.ts";
import { answerOf, chatbotWith, collect, entry, usageOf } from "../support/chat.ts";

type Parts = ReadonlyArray<Response.StreamPartEncoded>;
type Round = Parts | AiError.AiErrorReason | "silence";

const said = (...deltas: ReadonlyArray<string>): Parts => [
  { type: "text-start", id: "1" },
  ...deltas.map((delta) => ({ type: "text-delta" as const, id: "1", delta })),
  { type: "text-end", id: "1" },
];
const finish = (reason: Response.FinishReason): Parts => [
  {
    type: "finish",
    reason,
    usage: {
      inputTokens: { uncached: 11, total: 11, cacheRead: undefined, cacheWrite: undefined },
      outputTokens: { total: 7, text: 7, reasoning: undefined },
    },
    response: undefined,
  },
];
const calls = (name: string, params: object): Parts => [
  { type: "tool-call", id: "call-1", name, params },
  ...finish("tool-calls"),
];

/** A model that follows a script, round by round. */
const modelThat = (...script: ReadonlyArray<Round>) => {
  const requests: Array<LanguageModel.ProviderOptions> = [];
  let aborted = 0;
  const layer = Layer.effect(
    LanguageModel.LanguageModel,
    LanguageModel.make({
      generateText: () => Effect.die("not streamed"),
      streamText: (request) => {
        const round = script[requests.push(request) - 1]!;
        if (round === "silence")
          return Stream.onExit(Stream.never, () => Effect.sync(() => aborted++));
        if ("_tag" in round) {
          const module = "test";
          return Stream.fail(AiError.make({ module, method: "streamText", reason: round }));
        }
        return Stream.fromIterable(round);
      },
    }),
  );
  return { layer: Model.make("acme", "acme-1", layer), requests, aborted: () => aborted };
};

const promptOf = ({ prompt }: LanguageModel.ProviderOptions) =>
  prompt.content.map(({ content, role }) => [
    role,
    typeof content === "string"
      ? content
      : content.map((part) => (part.type === "text" ? part.text : part.type)).join("|"),
  ]);

it.effect("an answer of Effect's language model is streamed, and its tokens are counted", () => {
  const { layer, requests } = modelThat([...said("Hel", "lo"), ...finish("stop")]);
  return Effect.gen(function* () {
    const earlier = Stream.make(entry(1, "Hi?", "Hi!"));
    const parts = yield* collect("How are you?", earlier, chatbotWith("Be brief."));
    assert.deepStrictEqual(parts.slice(0, 2), [
      { _tag: "Delta", text: "Hel" },
      { _tag: "Delta", text: "lo" },
    ]);
    assert.deepInclude(usageOf(parts), {
      provider: "acme",
      model: "acme-1",
      promptTokens: 11,
      completionTokens: 7,
      attempts: 1,
    });
    assert.deepStrictEqual(requests.map(promptOf), [
      [
        ["system", "Be brief."],
        ["user", "Hi?"],
        ["assistant", "Hi!"],
        ["user", "How are you?"],
      ],
    ]);
  }).pipe(Effect.provide(layerEffectLanguageModel().pipe(Layer.provide(layer))));
});

const Orders = Toolkit.make(
  Tool.make("orders", {
    parameters: Schema.Struct({ state: Schema.String }),
    success: Schema.String,
  }),
);
const layerWith = (
  model: ReturnType<typeof modelThat>,
  orders: (state: string) => Effect.Effect<string>,
) =>
  layerEffectLanguageModel({ toolkit: Orders, retries: 0 }).pipe(
    Layer.provide([model.layer, Orders.toLayer({ orders: ({ state }) => orders(state) })]),
  );

it.effect("a tool receives the asker, and the model answers with its result", () => {
  const model = modelThat(
    [...said("Let me look."), ...calls("orders", { state: "open" })],
    [...said("Two."), ...finish("stop")],
  );
  const layer = layerWith(model, (state) =>
    CurrentAsk.useSync(({ context, userRef }) => `${state} orders of ${userRef} in ${context}`),
  );
  return Effect.gen(function* () {
    const parts = yield* collect("How many orders are open?");
    const texts = parts.map((part) => (part._tag === "Delta" ? part.text : ""));
    assert.strictEqual(texts.join(""), "Let me look.\n\nTwo.");
    assert.deepInclude(usageOf(parts), { promptTokens: 22, completionTokens: 14, attempts: 1 });
    assert.deepStrictEqual(promptOf(model.requests[1]!).slice(1), [
      ["assistant", "Let me look.|tool-call"],
      ["tool", "tool-result"],
    ]);
    assert.include(JSON.stringify(model.requests[1]!.prompt), "open orders of user-7 in Berlin");
  }).pipe(
    Effect.provide(layer),
    Effect.provideService(CurrentAsk, {
      ...CurrentAsk.defaultValue(),
      userRef: "user-7",
      context: "Berlin",
    }),
  );
});

it.effect("a model that keeps calling tools must answer in the end", () => {
  const rounds = Array.from({ length: 7 }, () => calls("orders", { state: "open" }));
  const model = modelThat(...rounds, [...said("Enough."), ...finish("stop")]);
  return Effect.gen(function* () {
    assert.strictEqual(yield* answerOf("How many?"), "Enough.");
    const choices = model.requests.map(({ toolChoice }) => toolChoice);
    assert.deepStrictEqual(choices, [...Array(7).fill("auto"), "none"]);
  }).pipe(Effect.provide(layerWith(model, () => Effect.succeed("one"))));
});

it.effect("a tool that fails ends the answer, without a word of the chat in the reason", () => {
  const model = modelThat(calls("orders", { state: "open" }));
  const secret = "the user's secret";
  return Effect.gen(function* () {
    const error = yield* Effect.flip(collect("How many?"));
    assert.instanceOf(error, AnswerUnavailable);
    assert.strictEqual(error.reason, "no language model answered: a tool failed: TypeError");
  }).pipe(Effect.provide(layerWith(model, () => Effect.die(new TypeError(secret)))));
});

it.live("a failure that may pass is retried, and others are not", () => {
  const answer = [...said("Yes."), ...finish("stop")];
  const limited = new AiError.RateLimitError({ retryAfter: Duration.millis(1) });
  const passing = modelThat(limited, answer);
  const final = modelThat(new AiError.AuthenticationError({ kind: "InvalidKey" }), answer);
  return Effect.gen(function* () {
    const usage = usageOf(yield* collect("Hi?").pipe(Effect.provide(layerOf(passing))));
    assert.strictEqual(usage.attempts, 2);
    const error = yield* Effect.flip(collect("Hi?").pipe(Effect.provide(layerOf(final))));
    assert.match((error as AnswerUnavailable).reason, /AuthenticationError/);
    assert.lengthOf(final.requests, 1);
  });
});
const layerOf = (model: ReturnType<typeof modelThat>) =>
  layerEffectLanguageModel().pipe(Layer.provide(model.layer));

it.live("when an ask is cancelled, the model's stream is interrupted", () => {
  const model = modelThat("silence");
  return Effect.gen(function* () {
    const answerer = Context.get(yield* Layer.build(layerOf(model)), Answerer);
    yield* answerer
      .answer(chatbotWith(null), Stream.empty, "Hi?")
      .pipe(Stream.runDrain, Effect.timeoutOption("50 millis"));
    yield* Effect.sleep("10 millis");
    assert.strictEqual(model.aborted(), 1);
  });
});
