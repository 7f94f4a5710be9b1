import { assert, it } from "@effect/vitest";
import { Effect, Layer, Stream } from "effect";
import { layerLanguageModel, openAiCompatible } from "../../src/index.ts";
import { collect, entry, textOf, usageOf } from "../support/chat.ts";
import { driven } from "../support/driven.ts";
import { endpoints, type Failure } from "../support/endpoints.ts";

/** The events of a stream, with a pause after each; or a failed response. */
type Reply = readonly [events: ReadonlyArray<string>, pauseMillis: number] | Failure;

/** Asks a model whose endpoint sends these replies, one after the other, and counts the calls. */
const askEndpoint = Effect.fnUntraced(function* (
  replies: ReadonlyArray<Reply>,
  earlier: Parameters<typeof collect>[1] = Stream.empty,
) {
  const context = yield* Effect.context();
  const sleep = (millis: number) =>
    millis === 0 ? Promise.resolve() : Effect.runPromiseWith(context)(Effect.sleep(millis));
  const sizes: Array<number> = [];
  const send = async (_url: unknown, init: RequestInit = {}) => {
    const [first, second, headers = {}] = replies[sizes.length] ?? replies.at(-1)!;
    sizes.push(JSON.parse(`${init.body}`).messages.length);
    if (typeof first === "number") {
      return new Response(JSON.stringify(second), { status: first, headers });
    }
    const events = first.values();
    return new Response(
      new ReadableStream({
        async pull(controller) {
          const { done, value } = events.next();
          if (done) return controller.close();
          await sleep(Number(second));
          controller.enqueue(new TextEncoder().encode(value));
        },
      }),
    );
  };
  const model = openAiCompatible({
    baseUrl: "http://localhost/v1",
    apiKey: undefined,
    model: "m",
    fetch: send as typeof fetch,
  });
  const options = { contextTokens: 5000, maxOutputTokens: 1000 };
  const result = yield* driven(collect("Hi?", earlier), 500).pipe(
    Effect.provide(Layer.unwrap(Effect.map(model, (m) => layerLanguageModel(m, options)))),
    Effect.match({
      onSuccess: (parts) => ({ text: textOf(parts), usage: usageOf(parts) }),
      onFailure: (error) => ({ text: `${"reason" in error ? error.reason : error}`, usage: null }),
    }),
  );
  return { ...result, calls: sizes.length, sizes };
});

const longChat = Stream.range(1, 200).pipe(
  Stream.map((n) => entry(201 - n, "q".repeat(12), "a".repeat(60))),
);

for (const endpoint of endpoints) {
  const answer: Reply = [endpoint.answer, 0];
  it.effect(`answers of ${endpoint.name} are read in any form and at any pace`, () =>
    Effect.gen(function* () {
      for (const reply of [
        answer,
        [endpoint.answer, 20],
        [endpoint.answer, 1000],
        [endpoint.cutByLength, 0],
        [[endpoint.answer.join("")], 0],
        [[...endpoint.answer.join("")], 0],
        [endpoint.reasoned(40), 1000],
      ] as const) {
        const { calls, text } = yield* askEndpoint([reply]);
        assert.deepStrictEqual({ calls, text }, { calls: 1, text: "Hello" });
      }
      const thought = yield* askEndpoint([[endpoint.onlyReasoned, 0]]);
      assert.include(thought.text, "output token limit on reasoning");
      assert.strictEqual(thought.calls, 1);
    }),
  );

  it.effect(`failures of ${endpoint.name} are retried if the same call may succeed`, () =>
    Effect.gen(function* () {
      const refused = yield* askEndpoint([[endpoint.refused, 0]]);
      assert.include(refused.text, "content filter");
      assert.strictEqual(refused.calls, 1);
      for (const failure of [endpoint.before5xx, endpoint.rate, [endpoint.broken, 0]] as const) {
        const { calls, text } = yield* askEndpoint([failure, answer]);
        assert.deepStrictEqual({ calls, text }, { calls: 2, text: "Hello" }, `${failure}`);
      }
      const quota = yield* askEndpoint([endpoint.quota]);
      assert.isNull(quota.usage);
      assert.strictEqual(quota.calls, 1);
      const long = yield* askEndpoint([endpoint.tooLong, answer], longChat);
      assert.strictEqual(long.text, "Hello");
      assert.isAtMost(long.sizes[1]!, long.sizes[0]! / 2 + 1);
    }),
  );
}
