import { assert, it } from "@effect/vitest";
import { AnswerUnavailable, ChatNotFound, inSpan, logFailure, Overloaded } from "@parley/core";
import { Cause, Effect, Logger, Tracer } from "effect";

it.effect("each reason of a failure has a line, and a client's mistake has none", () =>
  Effect.gen(function* () {
    const lines: Array<string> = [];
    const logger = Logger.make((entry) => void lines.push(Logger.formatJson.log(entry)));
    const causes = [
      Cause.fail(new AnswerUnavailable({ reason: "the model failed" })),
      Cause.fail(new Overloaded({ retryAfterSeconds: 2 })),
      Cause.fail(new ChatNotFound({ chatId: 7 })),
      Cause.die(new Error("a bug")),
    ];
    const all = causes.reduce<Cause.Cause<unknown>>(Cause.combine, Cause.empty);
    yield* Effect.provide(logFailure(all), Logger.layer([logger]));
    assert.lengthOf(lines, 3);
    assert.include(lines[0]!, "the model failed");
    assert.include(lines[1]!, "overloaded");
    assert.include(lines[2]!, "a bug");
  }),
);

it.effect(
  "a span has the words of its failure, and not the cause, which may quote a question",
  () =>
    Effect.gen(function* () {
      const ended: Array<Tracer.NativeSpan> = [];
      const tracer = Tracer.make({
        span: (options) => {
          const span = new Tracer.NativeSpan(options);
          ended.push(span);
          return span;
        },
      });
      const failure = new AnswerUnavailable({ reason: "broken", cause: new Error("secret") });
      yield* Effect.exit(Effect.withTracer(inSpan(Effect.fail(failure), "turn"), tracer));
      const { status } = ended[0]!;
      assert.strictEqual(status._tag, "Ended");
      if (status._tag !== "Ended" || status.exit._tag !== "Failure") return assert.fail();
      const shown = Cause.prettyErrors(status.exit.cause, { includeCauseInStack: true });
      assert.strictEqual(shown[0]!.message, "broken");
      assert.notInclude(shown.map(({ stack }) => stack).join(), "secret");
    }),
);
