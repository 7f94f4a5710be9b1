import { AskLimits } from "@parley/core";
import { AskDeadline, AskedModel, type Answerer } from "@parley/core/ports";
import { assert, it } from "@effect/vitest";
import { Clock, Duration, Effect, Metric, Stream } from "effect";
import {
  type LanguageModel,
  layerLanguageModel,
  type LanguageModelOptions,
} from "../../src/index.ts";
import { ask, collect, entry, textOf, usageOf } from "../support/chat.ts";
import { driven } from "../support/driven.ts";
import {
  finish,
  httpError,
  modelThat,
  promptOf,
  refused,
  type Reply,
  said,
  says,
} from "../support/models.ts";

const withModels = (
  models: readonly [LanguageModel, ...Array<LanguageModel>],
  options: LanguageModelOptions = {},
) => Effect.provide(layerLanguageModel(models, options));

/** A model that replies to its first calls with these, and to later calls with an answer. */
const first = (...replies: ReadonlyArray<Reply>) =>
  modelThat((n) => replies[n] ?? says("Hel", "lo"), "one");
const other = () => modelThat(() => says("other"), "two");
const always = (reply: Reply, provider = "one") => modelThat(() => reply, provider);

const transient: Record<string, Reply> = {
  "a refused connection": refused,
  "HTTP 408": httpError(408),
  "HTTP 429": httpError(429),
  "an invalid Retry-After": httpError(429, { headers: { "retry-after": "soon" } }),
  "HTTP 503": httpError(503),
  "an error part": [{ type: "error", error: "overloaded" }],
  "an empty answer": says(),
  "an answer of white space": says(" ", "\n\u0085"),
  "an end without text": said(),
  "an end within the text": said("Hel"),
};
const final: Record<string, Reply> = {
  "HTTP 400": httpError(400),
  "HTTP 401": httpError(401),
  "an abnormal end": [...said("Hel"), finish("error")],
  "a token limit without text": [...said(), finish("length")],
};

for (const [name, reply] of Object.entries(transient)) {
  it.effect(
    `after ${name}, a model is retried with a pause, or the next model is called at once`,
    () =>
      Effect.gen(function* () {
        const parts = yield* driven(collect("Hi?")).pipe(withModels([first(reply, reply)]));
        assert.strictEqual(textOf(parts), "Hello");
        assert.strictEqual(parts.filter(({ _tag }) => _tag === "Restart").length, 2);
        const { latencyMillis, ...usage } = usageOf(parts);
        assert.deepInclude(usage, { provider: "one", model: "one-1", attempts: 3 });
        assert.isAtLeast(latencyMillis, 480);
        assert.isAtMost(latencyMillis, 770);
        const others = yield* collect("Hi?").pipe(withModels([first(reply), other()]));
        assert.strictEqual(textOf(others), "other");
        assert.deepInclude(usageOf(others), { provider: "two", attempts: 2, latencyMillis: 0 });
      }),
  );
}

for (const [name, reply] of Object.entries(final)) {
  it.effect(`after ${name}, a model is not called again, but the next model is`, () => {
    const provider = always(reply);
    return Effect.gen(function* () {
      const parts = yield* driven(collect("Hi?")).pipe(withModels([provider, other()]));
      assert.deepInclude(usageOf(parts), { provider: "two", attempts: 2 });
      yield* driven(Effect.flip(collect("Hi?"))).pipe(withModels([provider]));
      assert.strictEqual(provider.doStreamCalls.length, 2);
    });
  });
}

it.effect(
  "two failing models are called alternately, five times each, before the answer fails",
  () => {
    const [one, two] = [always(httpError(503)), always(httpError(503), "two")];
    return Effect.gen(function* () {
      yield* driven(Effect.flip(collect("Hi?")));
      assert.deepStrictEqual([one.doStreamCalls.length, two.doStreamCalls.length], [5, 5]);
      assert.isAtMost(yield* Clock.currentTimeMillis, 4000);
    }).pipe(withModels([one, two]));
  },
);

it.effect(
  "the default idle timeout is a share of the deadline, and a larger share for the last model",
  () =>
    Effect.gen(function* () {
      for (const minutes of [0.5, 2]) {
        const limits = { ...AskLimits.defaultValue(), deadline: Duration.minutes(minutes) };
        const startedAt = yield* Clock.currentTimeMillis;
        const parts = yield* driven(collect("Hi?"), 1000).pipe(
          withModels([always("silence"), modelThat((n) => (n === 0 ? "silence" : says("late")))], {
            retries: 1,
          }),
          Effect.provideService(AskLimits, limits),
        );
        assert.strictEqual(textOf(parts), "late");
        // Two idle timeouts of the first model and one of the second.
        const millis = (yield* Clock.currentTimeMillis) - startedAt;
        assert.isAtLeast(millis, (2 * 8 + 20) * 2000 * minutes);
        assert.isAtMost(millis, (2 * 8 + 21) * 2000 * minutes + 1000);
      }
    }),
);

it.effect("a model is not retried for the same question before its Retry-After has elapsed", () =>
  Effect.gen(function* () {
    const { latencyMillis, ...usage } = usageOf(yield* driven(collect("Hi?")));
    assert.deepInclude(usage, { provider: "one", attempts: 3 });
    assert.isAtLeast(latencyMillis, 5000);
    assert.isAtMost(latencyMillis, 5300);
  }).pipe(
    withModels([
      first(httpError(429, { headers: { "retry-after": "5" } })),
      always(httpError(400), "two"),
    ]),
  ),
);

it.effect(
  "an answer fails at once if its model's Retry-After would only end after the deadline",
  () => {
    const one = always(httpError(429, { headers: { "retry-after": "10" } }));
    return Effect.gen(function* () {
      yield* driven(Effect.flip(collect("Hi?")));
      // The third pause would end after the deadline.
      assert.isAtMost(yield* Clock.currentTimeMillis, 21_000);
      assert.strictEqual(one.doStreamCalls.length, 3);
    }).pipe(withModels([one]), Effect.provideService(AskDeadline, 30_000));
  },
);

it.effect("an answer that is cut off is discarded before the pause, not after it", () =>
  Effect.gen(function* () {
    const times: Array<number> = [];
    yield* Stream.tap(ask("Hi?"), () =>
      Effect.map(Clock.currentTimeMillis, (now) => void times.push(now)),
    ).pipe(Stream.runDrain, driven);
    const [delta, restart, again] = times;
    assert.deepStrictEqual([delta, restart], [0, 0]);
    assert.isAtLeast(again!, 160);
  }).pipe(withModels([first(said("Hel"))])),
);

it.effect("if a content filter stops the answer, the next model is not called", () => {
  const [one, two] = [always([...said(), finish("content-filter")]), other()];
  return Effect.gen(function* () {
    const error = yield* Effect.flip(collect("Hi?"));
    const reason =
      "no language model answered: one: a content filter stopped the answer: content-filter";
    assert.propertyVal(error, "reason", reason);
    assert.strictEqual(two.doStreamCalls.length, 0);
  }).pipe(withModels([one, two]));
});

it.effect("the error names each failing model once, with the reason for its failure", () =>
  Effect.gen(function* () {
    const error = yield* driven(Effect.flip(collect("Hi?")));
    const reason =
      "no language model answered: one: HTTP 401, invalid_api_key; two: the answer is empty";
    assert.propertyVal(error, "reason", reason);
  }).pipe(
    withModels([
      always(httpError(401, { body: '{"error":{"code":"invalid_api_key"}}' })),
      always(says(), "two"),
    ]),
  ),
);

it.effect("metrics count a model's failures by reason, its answers and their tokens", () =>
  Effect.gen(function* () {
    // A model's counters exist before its first answer, which a rate would otherwise miss.
    const first = (yield* Metric.snapshot).flatMap(({ attributes, id }) =>
      attributes?.["provider"] === "one" ? [id] : [],
    );
    assert.includeMembers(first, ["parley.model.answers", "parley.model.tokens"]);
    yield* driven(collect("Hi?"));
    const counts = (yield* Metric.snapshot).flatMap((metric) =>
      metric.type === "Counter"
        ? [[metric.id, metric.attributes, Number(metric.state.count)] as const]
        : [],
    );
    const labels = { provider: "one", model: "one-1" };
    // A counter for each reason exists before the first failure, which a rate would otherwise miss.
    assert.deepInclude(counts, ["parley.model.failures", { ...labels, reason: "timeout" }, 0]);
    assert.sameDeepMembers(
      counts.filter(([, , count]) => count > 0),
      [
        ["parley.model.failures", { ...labels, reason: "server_error" }, 2],
        ["parley.model.failures", { ...labels, reason: "rate_limit" }, 1],
        ["parley.model.answers", labels, 1],
        ["parley.model.tokens", { ...labels, direction: "input" }, 11],
        ["parley.model.tokens", { ...labels, direction: "output" }, 7],
      ],
    );
  }).pipe(
    withModels([first(httpError(500), httpError(502), httpError(429))]),
    Effect.provideService(Metric.MetricRegistry, new Map()),
  ),
);

/** Each entry has 40 tokens. */
const longChat = Stream.range(1, 1000).pipe(
  Stream.map((n) => entry(1001 - n, "q".repeat(12), "a".repeat(60))),
);
const window = { contextTokens: 5000, maxOutputTokens: 1000 };

for (const [name, rejection] of Object.entries({
  "a code": httpError(400, { body: '{"error":{"code":"context_length_exceeded"}}' }),
  "words of its own": httpError(400, { body: '{"error":{"message":"Das ist zu lang."}}' }),
  "HTTP 422": httpError(422),
  "HTTP 413": httpError(413, { body: "Payload Too Large" }),
})) {
  it.effect(
    `a prompt over half of its budget that a model rejects with ${name} is halved once`,
    () =>
      Effect.gen(function* () {
        const lengthsOf = (model: ReturnType<typeof first>) =>
          model.doStreamCalls.map(({ prompt }) => (prompt.length - 1) / 2);
        const one = first(rejection);
        const parts = yield* collect("Hi?", longChat).pipe(withModels([one, other()], window));
        assert.deepInclude(usageOf(parts), { provider: "one", attempts: 2 });
        assert.deepStrictEqual(lengthsOf(one), [98, 48]);
        const again = first(rejection, rejection);
        const others = yield* collect("Hi?", longChat).pipe(withModels([again, other()], window));
        assert.deepInclude(usageOf(others), { provider: "two", attempts: 3 });
        const short = first(rejection);
        const third = yield* collect("Hi?").pipe(withModels([short, other()], window));
        assert.deepInclude(usageOf(third), { provider: "two", attempts: 2 });
      }),
  );
}

/** Returns the tokens counted for an answer from this model, of which `read` may read only a part. */
const tokensOf = Effect.fnUntraced(function* (
  model: LanguageModel,
  options: LanguageModelOptions = {},
  read: (answer: ReturnType<typeof ask>) => Effect.Effect<unknown, unknown, Answerer> = (answer) =>
    Stream.runDrain(answer),
) {
  const call: typeof AskedModel.Service = { model: null, attempts: 0, tokens: null };
  yield* Effect.exit(driven(read(ask("Hi?")))).pipe(
    withModels([model], options),
    Effect.provideService(AskedModel, call),
  );
  return call.tokens!;
});

it.effect(
  "the tokens of a question are those that the provider reports for each call, failed or not, plus an estimate for each failed call that it may bill without a report",
  () =>
    Effect.gen(function* () {
      const reported = 18;
      assert.strictEqual(yield* tokensOf(first()), reported);
      const model = first();
      yield* tokensOf(model);
      const promptLength = promptOf(model).reduce((sum, { content }) => sum + content.length, 0);
      const estimate = (answer: string) => Math.ceil((promptLength + answer.length) / 4);
      const expected: Record<string, number> = {
        "HTTP 408": estimate(""),
        "an empty answer": reported,
        "an answer of white space": reported,
        "an end without text": estimate(""),
        "an end within the text": estimate("Hel"),
      };
      for (const [name, reply] of Object.entries(transient)) {
        const tokens = yield* tokensOf(first(reply));
        assert.strictEqual(tokens, (expected[name] ?? 0) + reported, name);
      }
    }),
);

it.effect(
  "the tokens that the provider reports for a failed call count instead of an estimate",
  () =>
    Effect.gen(function* () {
      const brokenOff = { ...finish("other"), finishReason: { unified: "other", raw: undefined } };
      const replies: Record<string, Reply> = {
        ...final,
        "an empty answer": says(),
        "a content filter": [...said("Hel"), finish("content-filter")],
        "a cut-off": [...said("Hel"), brokenOff as ReturnType<typeof finish>],
        "silence after the report": [...said("Hel"), finish("stop"), "silence"],
      };
      const counts = yield* Effect.forEach(Object.entries(replies), ([name, reply]) =>
        Effect.map(tokensOf(always(reply), { retries: 0 }), (tokens) => [name, tokens]),
      );
      assert.deepStrictEqual(Object.fromEntries(counts), {
        "HTTP 400": 0,
        "HTTP 401": 0,
        "an abnormal end": 18,
        "a token limit without text": 18,
        "an empty answer": 18,
        "a content filter": 18,
        "a cut-off": 18,
        "silence after the report": 18,
      });
    }),
);

it.effect(
  "an answer that is cut off or cancelled counts as one token per four characters of the answer and its prompt",
  () =>
    Effect.gen(function* () {
      const long = () => modelThat(() => [...said("x".repeat(4000)), ...said("more")], "one");
      for (const cut of [
        (answer: ReturnType<typeof ask>) => Stream.runHead(answer),
        (answer: ReturnType<typeof ask>) =>
          Effect.flatMap(Stream.runHead(answer), () => Effect.interrupt),
      ]) {
        const tokens = yield* tokensOf(long(), {}, cut);
        assert.isAtLeast(tokens, 1000);
        assert.isAtMost(tokens, 1300);
      }
    }),
);
