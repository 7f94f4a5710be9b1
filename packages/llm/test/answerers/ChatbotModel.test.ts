import { assert, describe, it } from "@effect/vitest";
import { AnswerUnavailable, type Chatbot } from "@parley/core";
import { Effect, Stream } from "effect";
import { layerLanguageModel, layerOffline, makeKnowledge } from "../../src/index.ts";
import { answerOf, chatbotWith } from "../support/chat.ts";
import { httpError, modelThat, says } from "../support/models.ts";

const usual = chatbotWith(null);
const of = (settings: Partial<Chatbot["settings"]>): Chatbot => ({
  ...usual,
  settings: { ...usual.settings, ...settings },
});

const answer = (chatbot: Chatbot, question = "Hi?") => answerOf(question, Stream.empty, chatbot);

describe("a chatbot's own model", () => {
  it.effect("is asked in the place of the first, and made once", () => {
    const made: Array<string> = [];
    const modelNamed = (name: string) =>
      Effect.sync(() => {
        made.push(name);
        return modelThat(() => (name === "ill" ? httpError(400) : says(`I am ${name}`)), name);
      });
    const models = [
      modelThat(() => says("the first"), "first"),
      modelThat(() => says("the second"), "second"),
    ] as const;
    return Effect.gen(function* () {
      assert.strictEqual(yield* answer(usual), "the first");
      assert.strictEqual(yield* answer(of({ model: "large" })), "I am large");
      assert.strictEqual(yield* answer(of({ model: "large" })), "I am large");
      assert.strictEqual(yield* answer(of({ model: "ill" })), "the second");
      assert.deepStrictEqual(made, ["large", "ill"]);
    }).pipe(Effect.provide(layerLanguageModel(models, { modelNamed })));
  });

  it.effect("fails the ask where no model can be chosen", () =>
    Effect.gen(function* () {
      const error = yield* Effect.flip(answer(of({ model: "large" })));
      assert.instanceOf(error, AnswerUnavailable);
    }).pipe(Effect.provide(layerLanguageModel(modelThat(() => says("the first"))))),
  );
});

describe("a chatbot's own documents", () => {
  const passages = (text: string) =>
    makeKnowledge([{ source: "hours.md", headings: ["Opening hours"], text }]);

  it.effect("are the only ones it answers from", () =>
    Effect.gen(function* () {
      const [shop, office] = [yield* passages("From 9 to 17."), yield* passages("Always.")];
      const knowledge = ({ settings }: Chatbot) =>
        settings.knowledge === "gone"
          ? Effect.fail(new AnswerUnavailable({ reason: "no documents" }))
          : Effect.succeed(settings.knowledge === "office" ? office : shop);
      yield* Effect.gen(function* () {
        const question = "What are the opening hours?";
        assert.include(yield* answer(usual, question), "From 9 to 17.");
        assert.include(yield* answer(of({ knowledge: "office" }), question), "Always.");
        const error = yield* Effect.flip(answer(of({ knowledge: "gone" }), question));
        assert.instanceOf(error, AnswerUnavailable);
      }).pipe(Effect.provide(layerOffline(knowledge)));
    }),
  );
});
