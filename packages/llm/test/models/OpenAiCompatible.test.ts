import { LLMock } from "@copilotkit/aimock";
import { assert, describe, it } from "@effect/vitest";
import { Deferred, Effect, Layer, Redacted } from "effect";
import { layerLanguageModel, openAiCompatible } from "../../src/index.ts";
import { collect, textOf } from "../support/chat.ts";
import { endpoint } from "../support/endpoint.ts";

const withEndpoint = (baseUrl: string, model = "small") => {
  const made = openAiCompatible({
    baseUrl,
    apiKey: Redacted.make("sk-1"),
    model,
    provider: "house",
  });
  const options = { retries: 1, maxOutputTokens: 500 };
  return Effect.provide(
    Layer.unwrap(Effect.map(made, (model) => layerLanguageModel(model, options))),
  );
};

describe("openAiCompatible", () => {
  it.live("streams an answer from a server, and retries one that breaks off", () =>
    Effect.gen(function* () {
      const server = yield* Effect.acquireRelease(
        Effect.promise(() => LLMock.create({ port: 0, logLevel: "silent", chunkSize: 4 })),
        (mock) => Effect.promise(() => mock.stop()),
      );
      const answer = {
        content: "Hello from the model, at some length",
        usage: { prompt_tokens: 123, completion_tokens: 45 },
      };
      const brokenOff = { truncateAfterChunks: 4, latency: 20 };
      server.on({ userMessage: "Hi?", sequenceIndex: 0 }, answer, brokenOff);
      server.on({ userMessage: "Hi?", sequenceIndex: 1 }, answer);
      const parts = yield* collect("Hi?").pipe(withEndpoint(`${server.baseUrl}/v1`));
      assert.strictEqual(textOf(parts), answer.content);
      assert.isAbove(
        parts.findIndex(({ _tag }) => _tag === "Restart"),
        0,
      );
      const tokens = { promptTokens: 123, completionTokens: 45 };
      assert.containsSubset(parts.at(-1), {
        usage: { provider: "house.chat", model: "small", ...tokens, attempts: 2 },
      });
      assert.deepInclude(server.getLastRequest()?.body, {
        model: "small",
        messages: [{ role: "user", content: "Hi?" }],
        max_tokens: 500,
        stream: true,
        stream_options: { include_usage: true },
      });
    }),
  );

  it.effect("limits the output of OpenAI's newer models by max_completion_tokens", () =>
    Effect.gen(function* () {
      const { baseUrl, received } = yield* endpoint((response) =>
        response.writeHead(400).end("{}"),
      );
      for (const model of ["gpt-5.4-mini", "o3", "openai/gpt-5", "gpt-oss:20b", "gpt-4o"]) {
        yield* Effect.flip(collect("Hi?")).pipe(withEndpoint(baseUrl, model));
      }
      assert.strictEqual(received[0]?.authorization, "Bearer sk-1");
      const bounds = received.map(({ body }) => {
        const { max_completion_tokens, max_tokens } = body as Record<string, number>;
        return [max_tokens, max_completion_tokens];
      });
      const [newer, older] = [
        [undefined, 500],
        [500, undefined],
      ];
      assert.deepStrictEqual(bounds, [newer, newer, newer, older, older]);
    }),
  );

  it.effect("follows no redirect, which would send the chat to another address", () =>
    Effect.gen(function* () {
      const other = yield* endpoint((response) => response.writeHead(500).end("{}"));
      const { baseUrl, received } = yield* endpoint((response) => {
        response.writeHead(307, { location: `${other.baseUrl}/chat/completions` }).end();
      });
      const error = yield* Effect.flip(collect("Hi?")).pipe(withEndpoint(baseUrl));
      assert.propertyVal(error, "reason", "the language model failed: AI_APICallError, HTTP 307");
      assert.deepStrictEqual([received.length, other.received.length], [1, 0]);
    }),
  );

  it.live("sends no key if there is none, and closes the connection after the idle timeout", () =>
    Effect.gen(function* () {
      const closed = yield* Deferred.make<void>();
      const { baseUrl, received } = yield* endpoint((response) => {
        response.on("close", () => Deferred.doneUnsafe(closed, Effect.void));
      });
      const model = yield* openAiCompatible({ baseUrl, apiKey: undefined, model: "small" });
      yield* Effect.gen(function* () {
        const error = yield* Effect.flip(collect("Hi?"));
        assert.propertyVal(error, "reason", "the language model failed: no answer for 1000 ms");
        yield* Deferred.await(closed);
        assert.isUndefined(received[0]?.authorization);
      }).pipe(Effect.provide(layerLanguageModel(model, { idleTimeout: 1000, retries: 0 })));
    }),
  );
});
