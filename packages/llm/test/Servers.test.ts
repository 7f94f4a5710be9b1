/** Against servers that others wrote. */
import type { AddressInfo } from "node:net";
import { LLMock } from "@copilotkit/aimock";
import { createServer } from "@dwmkerr/mock-llm/dist/server.js";
import { type AnswerPart, AnswerUnavailable } from "@parley/core";
import { assert, describe, it } from "@effect/vitest";
import { Deferred, Effect, Fiber, Redacted, Stream } from "effect";
import { afterAll, vi } from "vitest";
import { layerLanguageModel, openAiCompatible } from "../src/index.ts";
import { ask, chatbotWith, collect, entry, textOf } from "./chat.ts";

// mock-llm prints every request.
const log = vi.spyOn(console, "log").mockImplementation(() => {});
afterAll(() => log.mockRestore());

const modelAt = (baseUrl: string, provider: string) =>
  openAiCompatible({ baseUrl, apiKey: Redacted.make("sk-1"), model: "small", provider });

const usageOf = (parts: ReadonlyArray<AnswerPart>) => {
  const last = parts.at(-1);
  return last?._tag === "Usage" ? { ...last.usage, latencyMillis: 0 } : null;
};

const aimock = Effect.acquireRelease(
  Effect.promise(() => LLMock.create({ port: 0, logLevel: "silent", chunkSize: 4 })),
  (server) => Effect.promise(() => server.stop()),
);

const completion = (content: string, status = 200) => ({ status, content });
const reply = (text: string) =>
  completion(
    JSON.stringify({
      id: "1",
      object: "chat.completion",
      created: 1,
      model: "small",
      choices: [{ index: 0, message: { role: "assistant", content: text }, finish_reason: "stop" }],
    }),
  );

/** The last rule that matches answers. */
const mockLlm = Effect.map(
  Effect.acquireRelease(
    Effect.callback<ReturnType<ReturnType<typeof createServer>["listen"]>>((resume) => {
      const path = "/v1/chat/completions";
      const app = createServer(
        {
          streaming: { chunkSize: 4, chunkIntervalMs: 2 },
          rules: [
            {
              path,
              match: "@",
              response: reply("You said {{jmes request body.messages[-1].content}}"),
            },
            {
              path,
              match: "contains(body.messages[-1].content, 'overload')",
              response: completion(
                JSON.stringify({ error: { message: "busy", code: "busy" } }),
                503,
              ),
            },
          ],
        },
        "127.0.0.1",
        0,
      );
      const server = app.listen(0, "127.0.0.1", () => resume(Effect.succeed(server)));
    }),
    (server) =>
      Effect.sync(() => {
        server.closeAllConnections();
        server.close();
      }),
  ),
  (server) => `http://127.0.0.1:${(server.address() as AddressInfo).port}/v1`,
);

describe("aimock", () => {
  it.live("streams an answer, and its usage is what is stored", () =>
    Effect.gen(function* () {
      const server = yield* aimock;
      server.onMessage("Hi?", {
        content: "Hello from the model",
        usage: { prompt_tokens: 123, completion_tokens: 45 },
      });
      const model = yield* modelAt(`${server.baseUrl}/v1`, "aimock");
      const parts = yield* collect(
        "Hi?",
        Stream.make(entry(1, "One?", "1")),
        chatbotWith("Be kind."),
      ).pipe(Effect.provide(layerLanguageModel(model)));
      assert.strictEqual(textOf(parts), "Hello from the model");
      assert.isAbove(parts.length, 4);
      assert.deepStrictEqual(usageOf(parts), {
        provider: "aimock.chat",
        model: "small",
        promptTokens: 123,
        completionTokens: 45,
        attempts: 1,
        latencyMillis: 0,
      });
      const { body, headers } = server.getLastRequest()!;
      // The server keeps no key.
      assert.property(headers, "authorization");
      assert.deepInclude(body, {
        model: "small",
        stream: true,
        max_tokens: 4096,
        messages: [
          { role: "system", content: "Be kind." },
          { role: "user", content: "One?" },
          { role: "assistant", content: "1" },
          { role: "user", content: "Hi?" },
        ],
      });
    }),
  );

  it.live("is asked again after an error, and both calls count", () =>
    Effect.gen(function* () {
      const server = yield* aimock;
      server.onMessage("Hi?", { content: "Hello" });
      server.nextRequestError(503, { message: "overloaded" });
      const model = yield* modelAt(`${server.baseUrl}/v1`, "aimock");
      const parts = yield* collect("Hi?").pipe(Effect.provide(layerLanguageModel(model)));
      assert.strictEqual(textOf(parts), "Hello");
      assert.strictEqual(usageOf(parts)?.attempts, 2);
      assert.strictEqual(server.getRequests().length, 2);
    }),
  );

  it.live("that refuses the length of the prompt gets a shorter one", () =>
    Effect.gen(function* () {
      const server = yield* aimock;
      server.onMessage("Hi?", { content: "Hello" });
      server.nextRequestError(400, { message: "no", code: "context_length_exceeded" });
      const model = yield* modelAt(`${server.baseUrl}/v1`, "aimock");
      const earlier = Stream.fromIterable(
        Array.from({ length: 100 }, (_, n) => entry(100 - n, "q", "a".repeat(200))),
      );
      const parts = yield* collect("Hi?", earlier).pipe(
        Effect.provide(layerLanguageModel(model, { contextTokens: 8096 })),
      );
      assert.strictEqual(textOf(parts), "Hello");
      const lengths = server
        .getRequests()
        .map(({ body }) => (body as { messages: ReadonlyArray<unknown> }).messages.length);
      assert.strictEqual(lengths.length, 2);
      assert.isAtMost(lengths[1]!, lengths[0]! / 2 + 1);
    }),
  );

  it.live("that is cut off midway gives no answer", () =>
    Effect.gen(function* () {
      const server = yield* aimock;
      server.on(
        { userMessage: "Hi?" },
        { content: "Hello from the model, at some length" },
        { truncateAfterChunks: 4, latency: 20 },
      );
      const model = yield* modelAt(`${server.baseUrl}/v1`, "aimock");
      const error = yield* Effect.flip(collect("Hi?")).pipe(
        Effect.provide(layerLanguageModel(model)),
      );
      assert.instanceOf(error, AnswerUnavailable);
      assert.isTrue(error.passing);
      assert.strictEqual(server.getRequests().length, 1);
    }),
  );
});

describe("mock-llm", () => {
  it.live("streams an answer; it tells no usage, and none is made up", () =>
    Effect.gen(function* () {
      const model = yield* modelAt(yield* mockLlm, "mock-llm");
      const parts = yield* collect("Hi there?").pipe(Effect.provide(layerLanguageModel(model)));
      assert.strictEqual(textOf(parts), "You said Hi there?");
      assert.isAbove(parts.length, 4);
      assert.deepStrictEqual(usageOf(parts), {
        provider: "mock-llm.chat",
        model: "small",
        promptTokens: 0,
        completionTokens: 0,
        attempts: 1,
        latencyMillis: 0,
      });
    }),
  );

  it.live("that tells an error within its stream is left for the other server", () =>
    Effect.gen(function* () {
      const server = yield* aimock;
      server.onMessage("overload", { content: "Hello from the other" });
      const first = yield* modelAt(yield* mockLlm, "mock-llm");
      const second = yield* modelAt(`${server.baseUrl}/v1`, "aimock");
      const parts = yield* collect("overload?").pipe(
        Effect.provide(layerLanguageModel([first, second], { retries: 1 })),
      );
      assert.strictEqual(textOf(parts), "Hello from the other");
      assert.deepInclude(usageOf(parts), { provider: "aimock.chat", attempts: 3 });
    }),
  );

  it.live("is left at once when the ask is cancelled", () =>
    Effect.gen(function* () {
      const model = yield* modelAt(yield* mockLlm, "mock-llm");
      yield* Effect.gen(function* () {
        const first = yield* Deferred.make<void>();
        const fiber = yield* ask("x".repeat(10_000)).pipe(
          Stream.tap(() => Deferred.succeed(first, undefined)),
          Stream.runDrain,
          Effect.forkChild,
        );
        yield* Deferred.await(first);
        const startedAt = performance.now();
        yield* Fiber.interrupt(fiber);
        assert.isBelow(performance.now() - startedAt, 250);
      }).pipe(Effect.provide(layerLanguageModel(model)));
    }),
  );
});
