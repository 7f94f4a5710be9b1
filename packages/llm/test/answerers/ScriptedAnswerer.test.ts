import { AnswerUnavailable } from "@parley/core/ports";
import { assert, describe, it } from "@effect/vitest";
import { Effect, Stream } from "effect";
import { layerScripted, type ScriptedCall } from "../../src/index.ts";
import { chatbotWith, collect, entry, textOf } from "../support/chat.ts";

describe("layerScripted", () => {
  it.effect("answers with the pieces that the script returns for the call", () => {
    const calls: Array<ScriptedCall> = [];
    const script = (call: ScriptedCall) => {
      calls.push(call);
      return [call.question, "!"];
    };
    return Effect.gen(function* () {
      const earlier = [entry(2, "b", "B"), entry(1, "a", "A")];
      const parts = yield* collect("c", Stream.fromIterable(earlier), chatbotWith("x"));
      assert.strictEqual(textOf(parts), "c!");
      assert.deepStrictEqual(calls, [{ chatbot: chatbotWith("x"), earlier, question: "c" }]);
    }).pipe(Effect.provide(layerScripted(script)));
  });

  it.effect("fails midway if the script returns a stream that does", () =>
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
