import { assert, describe, it } from "@effect/vitest";
import { Deferred, Effect, Fiber, Layer, Redacted, Stream } from "effect";
import { layerLanguageModel, openAiCompatible } from "../src/index.ts";
import { ask, chatbotWith, collect } from "./chat.ts";
import { endpoint } from "./endpoint.ts";

const chunk = (value: unknown) => `data: ${JSON.stringify(value)}\n\n`;
const delta = (content: string) => chunk({ choices: [{ index: 0, delta: { content } }] });

const withEndpoint = (baseUrl: string, apiKey: string | undefined, model = "small") =>
  Effect.provide(
    Layer.unwrap(
      Effect.map(
        openAiCompatible({
          baseUrl,
          apiKey: apiKey === undefined ? undefined : Redacted.make(apiKey),
          model,
          provider: "house",
        }),
        (model) => layerLanguageModel(model, { retries: 0, maxOutputTokens: 500 }),
      ),
    ),
  );

describe("openAiCompatible", () => {
  it.effect("speaks chat completions, with key and usage", () =>
    Effect.gen(function* () {
      const { baseUrl, received } = yield* endpoint((response) => {
        response.writeHead(200, { "content-type": "text/event-stream" });
        response.write(delta("Hel"));
        response.write(delta("lo"));
        response.write(chunk({ choices: [{ index: 0, delta: {}, finish_reason: "stop" }] }));
        response.write(
          chunk({
            choices: [],
            usage: { prompt_tokens: 5, completion_tokens: 2, total_tokens: 7 },
          }),
        );
        response.end("data: [DONE]\n\n");
      });
      const parts = yield* collect("Hi?", Stream.empty, chatbotWith("Be kind.")).pipe(
        withEndpoint(baseUrl, "sk-1"),
      );
      assert.deepStrictEqual(parts.slice(0, 2), [
        { _tag: "Delta", text: "Hel" },
        { _tag: "Delta", text: "lo" },
      ]);
      const last = parts[2];
      assert.deepStrictEqual(last?._tag === "Usage" && { ...last.usage, latencyMillis: 0 }, {
        provider: "house.chat",
        model: "small",
        promptTokens: 5,
        completionTokens: 2,
        attempts: 1,
        latencyMillis: 0,
      });
      assert.deepStrictEqual(received, [
        {
          url: "/v1/chat/completions",
          authorization: "Bearer sk-1",
          body: {
            model: "small",
            messages: [
              { role: "system", content: "Be kind." },
              { role: "user", content: "Hi?" },
            ],
            max_tokens: 500,
            stream: true,
            stream_options: { include_usage: true },
          },
        },
      ]);
    }),
  );

  it.effect("bounds the output of newer models of OpenAI by the name that they know", () =>
    Effect.gen(function* () {
      const { baseUrl, received } = yield* endpoint((response) =>
        response.writeHead(400).end("{}"),
      );
      for (const model of ["gpt-5.4-mini", "o3", "openai/gpt-5", "gpt-oss:20b", "gpt-4o"]) {
        yield* Effect.flip(collect("Hi?")).pipe(withEndpoint(baseUrl, undefined, model));
      }
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

  it.effect("sends no key when there is none, and fails with the status", () =>
    Effect.gen(function* () {
      const { baseUrl, received } = yield* endpoint((response) => {
        response.writeHead(503, { "content-type": "application/json" });
        response.end(JSON.stringify({ error: { message: "no" } }));
      });
      const error = yield* Effect.flip(collect("Hi?")).pipe(withEndpoint(baseUrl, undefined));
      assert.propertyVal(error, "reason", "the language model failed: AI_APICallError, HTTP 503");
      assert.strictEqual(received.length, 1);
      assert.isUndefined(received[0]?.authorization);
    }),
  );

  it.effect("a connection that breaks off is no answer", () =>
    Effect.gen(function* () {
      const { baseUrl } = yield* endpoint((response) => {
        response.writeHead(200, { "content-type": "text/event-stream" });
        response.write(delta("Hel"));
        setImmediate(() => response.destroy());
      });
      const error = yield* Effect.flip(collect("Hi?")).pipe(withEndpoint(baseUrl, undefined));
      assert.strictEqual(error._tag, "AnswerUnavailable");
    }),
  );

  it.effect("interruption closes the connection", () =>
    Effect.gen(function* () {
      const closed = yield* Deferred.make<void>();
      const { baseUrl } = yield* endpoint((response) => {
        response.on("close", () => Deferred.doneUnsafe(closed, Effect.void));
        response.writeHead(200, { "content-type": "text/event-stream" });
        response.write(delta("Hel"));
      });
      yield* Effect.gen(function* () {
        const first = yield* Deferred.make<void>();
        const fiber = yield* ask("Hi?").pipe(
          Stream.tap(() => Deferred.succeed(first, undefined)),
          Stream.runDrain,
          Effect.forkChild,
        );
        yield* Deferred.await(first);
        yield* Fiber.interrupt(fiber);
        yield* Deferred.await(closed);
      }).pipe(withEndpoint(baseUrl, undefined));
    }),
  );

  it.live("silence closes the connection", () =>
    Effect.gen(function* () {
      const closed = yield* Deferred.make<void>();
      const { baseUrl } = yield* endpoint((response) => {
        response.on("close", () => Deferred.doneUnsafe(closed, Effect.void));
      });
      const model = yield* openAiCompatible({ baseUrl, apiKey: undefined, model: "small" });
      yield* Effect.gen(function* () {
        const error = yield* Effect.flip(collect("Hi?"));
        assert.propertyVal(error, "reason", "the language model was silent for 100 ms");
        yield* Deferred.await(closed);
      }).pipe(Effect.provide(layerLanguageModel(model, { silence: 100 })));
    }),
  );
});
