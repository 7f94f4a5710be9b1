import { Answerer, AnswerUnavailable, AskLimits, type AnswerPart, type Usage } from "@parley/core";
import { assert, describe, it } from "@effect/vitest";
import { Clock, Duration, Effect, Logger, Metric, Stream } from "effect";
import { TestClock } from "effect/testing";
import { type LanguageModel, layerLanguageModel, type LanguageModelOptions } from "../src/index.ts";
import { ask, chatbotWith, collect, textOf } from "./chat.ts";
import { driven } from "./driven.ts";
import { finish, httpError, modelThat, type Reply, said, says } from "./models.ts";

const withModels = (
  models: readonly [LanguageModel, ...Array<LanguageModel>],
  options: LanguageModelOptions = {},
) => Effect.provide(layerLanguageModel(models, options));

const usageOf = (parts: ReadonlyArray<AnswerPart>): Usage => {
  const last = parts.at(-1);
  assert.strictEqual(last?._tag, "Usage");
  return (last as Extract<AnswerPart, { _tag: "Usage" }>).usage;
};

/** The first calls do what is told, all others answer. */
const first = (...replies: ReadonlyArray<Reply>) =>
  modelThat((n) => replies[n] ?? says("Hel", "lo"), "one");
const other = () => modelThat(() => says("other"), "two");
const always = (reply: Reply, provider = "one") => modelThat(() => reply, provider);

const refused = Object.assign(new TypeError("fetch failed"), {
  cause: Object.assign(new Error(), { code: "ECONNREFUSED" }),
});
const cutBeforeText: Reply = said();
const cutAfterText: Reply = said("Hel");

describe("a failing model", () => {
  const helped: Record<string, Reply> = {
    "a refused connection": refused,
    "HTTP 408": httpError(408),
    "HTTP 429": httpError(429),
    "HTTP 500": httpError(500),
    "HTTP 503": httpError(503),
    "an error part": [{ type: "error", error: "overloaded" }],
    "an end without text": cutBeforeText,
  };
  for (const [name, reply] of Object.entries(helped)) {
    it.effect(`is asked again after ${name}, and the failed call counts`, () => {
      const [one, two] = [first(reply, reply), other()];
      return Effect.gen(function* () {
        const parts = yield* driven(collect("Hi?"));
        assert.strictEqual(textOf(parts), "Hello");
        const { latencyMillis, ...usage } = usageOf(parts);
        assert.deepStrictEqual(usage, {
          provider: "one",
          model: "one-1",
          promptTokens: 11,
          completionTokens: 7,
          attempts: 3,
        });
        assert.isAtLeast(latencyMillis, 150);
        assert.isAtMost(latencyMillis, 550);
        assert.strictEqual(two.doStreamCalls.length, 0);
      }).pipe(withModels([one, two]));
    });
  }

  const helpless: Record<string, Reply> = {
    "HTTP 400": httpError(400),
    "HTTP 401": httpError(401),
    "HTTP 404": httpError(404),
    "an account without money": httpError(429, { body: '{"code":"insufficient_quota"}' }),
    "a Retry-After": httpError(429, { headers: { "retry-after": "1" } }),
    silence: "silence",
    "an answer of nothing": says(),
    "an answer of white space": says(" ", "\n"),
    "a strange end": [...said(), finish("other")],
  };
  for (const [name, reply] of Object.entries(helpless)) {
    it.effect(`is left for the next after ${name}`, () => {
      const [one, two] = [first(reply), other()];
      return Effect.gen(function* () {
        const parts = yield* driven(collect("Hi?"));
        assert.strictEqual(textOf(parts), "other");
        assert.strictEqual(one.doStreamCalls.length, 1);
        const { attempts, latencyMillis, provider } = usageOf(parts);
        assert.deepStrictEqual([provider, attempts], ["two", 2]);
        const silence = reply === "silence" ? 8000 : 0;
        assert.isAtLeast(latencyMillis, silence);
        assert.isAtMost(latencyMillis, silence + 100);
      }).pipe(withModels([one, two]));
    });
  }

  it.effect("is waited for longer when there is no other", () => {
    const models = [always("silence"), always("silence", "two")] as const;
    return Effect.gen(function* () {
      const startedAt = yield* Clock.currentTimeMillis;
      yield* driven(Effect.flip(collect("Hi?")), 1000);
      assert.strictEqual((yield* Clock.currentTimeMillis) - startedAt, 28_000);
    }).pipe(withModels(models));
  });

  it.effect("is waited for in proportion to the deadline of asks", () => {
    const limits = { ...AskLimits.defaultValue(), deadline: Duration.minutes(2) };
    return Effect.gen(function* () {
      yield* driven(Effect.flip(collect("Hi?")), 1000);
      assert.strictEqual(yield* Clock.currentTimeMillis, 4 * 28_000);
    }).pipe(
      withModels([always("silence"), always("silence", "two")]),
      Effect.provideService(AskLimits, limits),
    );
  });

  it.effect("is left for the next when it keeps failing", () => {
    const [one, two] = [always(httpError(503)), other()];
    return Effect.gen(function* () {
      assert.strictEqual(usageOf(yield* driven(collect("Hi?"))).attempts, 4);
      assert.strictEqual(one.doStreamCalls.length, 3);
    }).pipe(withModels([one, two]));
  });

  it.effect("whose Retry-After makes no sense is asked again after a pause", () =>
    Effect.gen(function* () {
      const { attempts, latencyMillis } = usageOf(yield* driven(collect("Hi?")));
      assert.strictEqual(attempts, 2);
      assert.isAtMost(latencyMillis, 200);
    }).pipe(withModels([first(httpError(429, { headers: { "retry-after": "soon" } })), other()])),
  );

  for (const [headers, millis] of [
    [{ "retry-after": "5" }, 5000],
    [{ "retry-after-ms": "1500" }, 1500],
  ] as const) {
    it.effect(`is not asked this question before it wants: ${JSON.stringify(headers)}`, () => {
      const [one, two] = [first(httpError(429, { headers })), always(httpError(400), "two")];
      return Effect.gen(function* () {
        const answerer = yield* Answerer;
        const question = answerer.answer(chatbotWith(null), Stream.empty, "Hi?");
        const error = yield* Effect.flip(Stream.runDrain(question));
        assert.strictEqual(yield* Clock.currentTimeMillis, 0);
        assert.deepInclude(error, { passing: true, retryAfterMillis: millis });
        yield* TestClock.adjust(millis - 1);
        const again = yield* Effect.flip(Stream.runDrain(question));
        assert.deepInclude(again, { passing: true, retryAfterMillis: 1 });
        assert.strictEqual(one.doStreamCalls.length, 1);
        yield* TestClock.adjust(1);
        const parts = yield* Stream.runCollect(question);
        assert.strictEqual(textOf(parts), "Hello");
        // All calls and all the time that the question took.
        assert.deepInclude(usageOf(parts), {
          provider: "one",
          attempts: 4,
          latencyMillis: millis,
        });
      }).pipe(withModels([one, two]));
    });
  }

  it.effect("that wants to be left alone is asked other questions last", () => {
    const headers = { "retry-after": "60" };
    const replies: Array<Reply> = [says("other"), says("other"), httpError(400)];
    const [one, two] = [
      first(httpError(503, { headers })),
      modelThat((n) => replies[n] ?? says("other"), "two"),
    ];
    const answeredBy = Effect.map(driven(collect("Hi?")), (parts) => usageOf(parts).provider);
    return Effect.gen(function* () {
      assert.strictEqual(yield* answeredBy, "two");
      assert.strictEqual(yield* answeredBy, "two");
      assert.strictEqual(one.doStreamCalls.length, 1);
      // Only who never heard of it asks all the same, where nobody else can answer.
      assert.strictEqual(yield* answeredBy, "one");
      yield* TestClock.adjust("59 seconds");
      assert.strictEqual(yield* answeredBy, "two");
      yield* TestClock.adjust("1 second");
      assert.strictEqual(yield* answeredBy, "one");
    }).pipe(withModels([one, two]));
  });

  it.effect("is never asked again once a piece of the answer came", () => {
    const [one, two] = [always(cutAfterText), other()];
    return Effect.gen(function* () {
      const pieces: Array<AnswerPart> = [];
      const error = yield* ask("Hi?").pipe(
        Stream.runForEach((part) => Effect.sync(() => pieces.push(part))),
        Effect.flip,
        driven,
      );
      assert.instanceOf(error, AnswerUnavailable);
      assert.isTrue(error.passing);
      assert.strictEqual(textOf(pieces), "Hel");
      assert.strictEqual(one.doStreamCalls.length, 1);
      assert.strictEqual(two.doStreamCalls.length, 0);
    }).pipe(withModels([one, two]));
  });

  it.effect("that falls silent within its answer has broken off", () => {
    const model = modelThat(() => said("Hel"), "one");
    const { doStream } = model;
    model.doStream = async (call) => {
      const { stream } = await doStream.call(model, call);
      const forEver = new ReadableStream<never>();
      return {
        stream: new ReadableStream({
          async start(controller) {
            for await (const part of stream) controller.enqueue(part);
            await forEver.getReader().read();
          },
        }),
      };
    };
    return Effect.gen(function* () {
      const startedAt = yield* Clock.currentTimeMillis;
      const error = yield* driven(Effect.flip(collect("Hi?")));
      assert.propertyVal(error, "reason", "the language model was silent for 3000 ms");
      assert.propertyVal(error, "passing", true);
      assert.strictEqual((yield* Clock.currentTimeMillis) - startedAt, 3000);
    }).pipe(withModels([model], { silence: "3 seconds" }));
  });

  it.effect("that withholds its answer is not gone round", () => {
    const [one, two] = [always([...said(), finish("content-filter")]), other()];
    return Effect.gen(function* () {
      const error = yield* driven(Effect.flip(collect("Hi?")));
      assert.propertyVal(error, "passing", false);
      assert.propertyVal(error, "reason", "the answer ended abnormally: content-filter");
      assert.strictEqual(two.doStreamCalls.length, 0);
    }).pipe(withModels([one, two]));
  });

  it.effect("whose call failed is not left with an open request", () => {
    const signals: Array<AbortSignal | undefined> = [];
    const replies: ReadonlyArray<Reply> = ["silence", httpError(500)];
    const model = modelThat((n, { abortSignal }) => {
      signals.push(abortSignal);
      return replies[n] ?? says("Hello");
    });
    const next = modelThat((n, { abortSignal }) => {
      signals.push(abortSignal);
      return replies[n + 1] ?? says("Hello");
    });
    return Effect.gen(function* () {
      yield* driven(
        Stream.runForEach(ask("Hi?"), (part) =>
          Effect.sync(() => {
            if (part._tag !== "Delta") return;
            assert.deepStrictEqual(
              signals.map((signal) => signal?.aborted),
              [true, true, false],
            );
          }),
        ),
      );
      assert.strictEqual(signals.length, 3);
    }).pipe(withModels([model, next]));
  });

  it.effect("tells the failures of all, whether they may pass, and no text", () => {
    const secrets = ["key-1", "the question", "the instructions"];
    const leaking = httpError(401, { body: secrets.join(" ") });
    leaking.message = secrets.join(" ");
    leaking.cause = Object.assign(new Error(secrets.join(" ")), { name: "the question" });
    const logged: Array<string> = [];
    const logger = Logger.make((entry) => {
      logged.push(Logger.formatJson.log(entry));
    });
    return Effect.gen(function* () {
      const error = yield* driven(
        Effect.flip(collect("the question", Stream.empty, chatbotWith("the instructions"))),
      );
      assert.instanceOf(error, AnswerUnavailable);
      assert.isTrue(error.passing);
      assert.strictEqual(
        error.reason,
        "the language model failed: AI_APICallError, HTTP 401; the answer is empty",
      );
      const told = [JSON.stringify({ ...error }), error.stack, ...logged].join("\n");
      for (const secret of secrets) assert.notInclude(told, secret);
      assert.strictEqual(logged.length, 2);
    }).pipe(
      withModels([always(leaking), always(says(), "two")]),
      Effect.provide(Logger.layer([logger])),
    );
  });

  it.effect("is counted by provider and reason, an answer by provider", () =>
    Effect.gen(function* () {
      yield* driven(collect("Hi?"));
      const counts = (yield* Metric.snapshot).flatMap((one) =>
        one.type === "Counter" ? [[one.id, one.attributes, Number(one.state.count)] as const] : [],
      );
      assert.sameDeepMembers(counts, [
        ["parley_model_failures", { provider: "one", reason: "server_error" }, 2],
        ["parley_model_failures", { provider: "one", reason: "rate_limit" }, 1],
        ["parley_answers", { provider: "two" }, 1],
      ]);
    }).pipe(
      withModels([first(httpError(500), httpError(502), httpError(429)), other()]),
      Effect.provideService(Metric.MetricRegistry, new Map()),
    ),
  );

  for (const error of [
    httpError(400, { body: '{"error":{"code":"context_length_exceeded"}}' }),
    httpError(400, { body: "This model's maximum context length is 8192 tokens." }),
    httpError(413, { body: "Payload Too Large" }),
  ]) {
    it.effect(
      `gets half of the chat when it was too much: ${(error as never)["responseBody"]}`,
      () => {
        const model = first(error);
        const earlier = Stream.range(1, 1000).pipe(
          Stream.map((n) => ({
            id: 1001 - n,
            chatId: 1,
            question: "q".repeat(20),
            answer: "a".repeat(64),
            moderation: "none",
            flagged: false,
            createTime: new Date(n),
          })),
        );
        return Effect.gen(function* () {
          const parts = yield* driven(collect("Hi?", earlier));
          assert.strictEqual(usageOf(parts).attempts, 2);
          const [before, after] = model.doStreamCalls.map(({ prompt }) => prompt.length);
          // 10 000 bytes, 100 for each entry
          assert.deepStrictEqual([before, after], [2 * 99 + 1, 2 * 49 + 1]);
        }).pipe(withModels([model], { contextTokens: 11_000, maxOutputTokens: 1000 }));
      },
    );
  }

  it.effect("that finds half too much as well is left for the next", () => {
    const tooLong = httpError(400, { body: "context_length_exceeded" });
    const [one, two] = [always(tooLong), other()];
    return Effect.gen(function* () {
      assert.strictEqual(usageOf(yield* driven(collect("Hi?"))).attempts, 3);
      assert.strictEqual(one.doStreamCalls.length, 2);
    }).pipe(withModels([one, two]));
  });
});
