import { assert, it } from "@effect/vitest";
import { AnswerUnavailable } from "@parley/core/ports";
import { Cause, Effect, Fiber, Stream } from "effect";
import { TestClock } from "effect/testing";
import { toErrorResponse } from "../../src/serve/ErrorResponses.ts";
import { toEventStream } from "../../src/serve/EventStream.ts";
import { makeTestHandler } from "../TestHandler.ts";

it.live("a stream that breaks off leaves a line in the log with the id of its request", () =>
  Effect.gen(function* () {
    for (const [failure, message] of [
      [Effect.fail(new AnswerUnavailable({ reason: "cut off" })), "cut off"],
      [Effect.die(new Error("a mistake")), "A request met a defect"],
    ] as const) {
      const { logged, send } = yield* makeTestHandler(() =>
        Stream.concat(
          Stream.make({ _tag: "Delta", text: "first" } as const),
          Stream.fromEffect(Effect.delay(failure, "50 millis")),
        ),
      );
      const response = yield* send("/ask", {
        method: "POST",
        body: JSON.stringify({ query: "q" }),
        headers: { accept: "text/event-stream" },
      });
      assert.include(yield* Effect.promise(() => response.text()), "event: error");
      assert.strictEqual(logged.length, 1);
      assert.include(logged[0]!, message);
      assert.include(logged[0]!, response.headers.get("x-request-id")!);
    }
  }).pipe(Effect.scoped),
);

it.effect(
  "a stream opens with a comment after 15 seconds without an event, and can end in an error",
  () =>
    Effect.gen(function* () {
      const error = new AnswerUnavailable({ reason: "test" });
      const events = Stream.fromEffect(Effect.delay(Effect.fail(error), "40 seconds"));
      const opening = yield* Effect.forkChild(
        toEventStream(events, () => Effect.succeed(toErrorResponse(Cause.fail(error)))),
      );
      yield* TestClock.adjust("14 seconds");
      assert.isUndefined(opening.pollUnsafe());
      yield* TestClock.adjust("1 second");
      const { body, headers, status } = yield* Fiber.join(opening);
      assert.deepStrictEqual([status, headers["idempotent-replayed"]], [200, undefined]);
      if (body._tag !== "Stream") return assert.fail("a stream");
      const reading = yield* Effect.forkChild(Stream.runCollect(Stream.decodeText(body.stream)));
      yield* TestClock.adjust("1 second");
      yield* TestClock.adjust("24 seconds");
      assert.deepStrictEqual(yield* Fiber.join(reading), [
        ": \n\n",
        ": \n\n",
        'event: error\ndata: {"status":500,"code":500002,"message":"ANSWER_UNAVAILABLE"}\n\n',
      ]);
    }).pipe(Effect.scoped),
);
