import { AnswerUnavailable } from "@parley/core";
import { assert, describe, it } from "@effect/vitest";
import { Effect, Stream } from "effect";
import { layerScripted, ScriptedAnswerer } from "../../src/index.ts";
import { answerOf, chatbotWith, collect, entry, textOf } from "../support/chat.ts";

describe("layerScripted", () => {
  it.effect("says the script and remembers the call", () =>
    Effect.gen(function* () {
      const earlier = [entry(2, "b", "B"), entry(1, "a", "A")];
      const parts = yield* collect("c", Stream.fromIterable(earlier), chatbotWith("x"));
      assert.strictEqual(textOf(parts), "c!");
      assert.containsSubset(parts.at(-1), {
        usage: { provider: "scripted", model: "scripted", promptTokens: 0, attempts: 1 },
      });
      assert.deepStrictEqual((yield* ScriptedAnswerer).calls, [
        { chatbot: chatbotWith("x"), earlier, question: "c" },
      ]);
    }).pipe(Effect.provide(layerScripted(({ question }) => [question, "!"]))),
  );

  it.effect("takes an effect", () =>
    Effect.gen(function* () {
      assert.strictEqual(yield* answerOf("c"), "ab");
    }).pipe(Effect.provide(layerScripted(() => Effect.succeed(["a", "b"])))),
  );

  it.effect("takes a stream, which may fail midway", () =>
    Effect.gen(function* () {
      assert.strictEqual((yield* Effect.flip(collect("c")))._tag, "AnswerUnavailable");
    }).pipe(
      Effect.provide(
        layerScripted(() =>
          Stream.concat(Stream.make("a"), Stream.fail(new AnswerUnavailable({ reason: "test" }))),
        ),
      ),
    ),
  );
});
