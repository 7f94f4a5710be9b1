import { assert, it } from "@effect/vitest";
import { ChatbotId, Asking, AskLimits, defaultSettings } from "@parley/core";
import { AnswerUnavailable } from "@parley/core/ports";
import { Cause, Context, Duration, Effect, Fiber, Layer, Stream } from "effect";
import { TestClock } from "effect/testing";
import { toErrorResponse } from "../../src/serve/ErrorResponses.ts";
import { toEventStream } from "../../src/serve/EventStream.ts";
import { makeTestHandler } from "../TestHandler.ts";

it.live("a stream that fails is logged on one line, with the id of its request", () =>
  Effect.gen(function* () {
    for (const [failure, message] of [
      [Effect.fail(new AnswerUnavailable({ reason: "cut off" })), "cut off"],
      [Effect.die(new Error("a mistake")), "Unexpected error in a request"],
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

const chatbot = {
  id: ChatbotId.make(1),
  name: "",
  description: "",
  workspaceName: "",
  settings: defaultSettings,
};

it.effect(
  "a stream begins with a comment after 15 seconds without an event, and may still end with an error",
  () =>
    Effect.gen(function* () {
      const error = new AnswerUnavailable({ reason: "test" });
      const { layer } = yield* makeTestHandler(() =>
        Stream.fromEffect(Effect.delay(Effect.fail(error), "40 seconds")),
      );
      const limits = { ...AskLimits.defaultValue(), deadline: Duration.minutes(1) };
      const services = yield* Layer.build(Layer.provide(layer, Layer.succeed(AskLimits, limits)));
      const asking = Context.get(services, Asking);
      const ask = { chatId: null, question: "q" };
      const opening = yield* Effect.forkChild(
        toEventStream(
          (keepAlive) => asking.stream(chatbot, ask, null, keepAlive),
          [],
          () => Effect.succeed(toErrorResponse(Cause.fail(error))),
        ),
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

it.live("deltas from one iteration of the event loop are combined and sent in one write", () =>
  Effect.gen(function* () {
    const nextIteration = Effect.callback<void>(
      (resume) => void setTimeout(() => resume(Effect.void)),
    );
    const iterations = [["one ", "two ", "three "], ["four "], ["five ", "six"]];
    const { send } = yield* makeTestHandler(() =>
      Stream.fromIterable(iterations, { chunkSize: 1 }).pipe(
        Stream.mapEffect((texts) => Effect.as(nextIteration, texts)),
        Stream.flatMap((texts) => Stream.fromIterable(texts, { chunkSize: 1 })),
        Stream.map((text) => ({ _tag: "Delta", text }) as const),
      ),
    );
    const { body } = yield* send("/ask", {
      method: "POST",
      body: JSON.stringify({ query: "q" }),
      headers: { accept: "text/event-stream" },
    });
    const writes: Array<string> = [];
    const decoder = new TextDecoder();
    yield* Effect.promise(async () => {
      for await (const bytes of body!) writes.push(decoder.decode(bytes));
    });
    const deltas = writes.join("").match(/(?<=event: delta\n.*\ndata: ).*/g);
    assert.deepStrictEqual(
      deltas?.map((data) => JSON.parse(data).text),
      iterations.map((texts) => texts.join("")),
    );
    assert.isAtMost(writes.length, iterations.length + 1);
  }).pipe(Effect.scoped),
);
