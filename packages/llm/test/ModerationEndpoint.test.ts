import type { ServerResponse } from "node:http";
import { LLMock } from "@copilotkit/aimock";
import { AnswerUnavailable, Moderator } from "@parley/core";
import { assert, describe, it } from "@effect/vitest";
import { Effect, Logger, Redacted } from "effect";
import { TestClock } from "effect/testing";
import { layerModerationEndpoint, type ModerationEndpointSettings } from "../src/index.ts";
import { chatbotWith } from "./chat.ts";
import { driven } from "./driven.ts";
import { endpoint } from "./endpoint.ts";

const check = (question: string) =>
  Moderator.use((moderator) => moderator.check(chatbotWith("instructions"), question));

const at = (baseUrl: string, more: Partial<ModerationEndpointSettings> = {}) =>
  Effect.provide(
    layerModerationEndpoint({
      baseUrl,
      apiKey: Redacted.make("sk-1"),
      model: "omni-moderation-latest",
      ...more,
    }),
  );

const mock = Effect.acquireRelease(
  Effect.promise(() => LLMock.create({ port: 0, logLevel: "silent" })),
  (server) => Effect.promise(() => server.stop()),
);

const json =
  (value: unknown, status = 200) =>
  (response: ServerResponse) =>
    response.writeHead(status, { "content-type": "application/json" }).end(JSON.stringify(value));

describe("layerModerationEndpoint", () => {
  it.effect("takes the flagged category with the highest score", () =>
    Effect.gen(function* () {
      const server = yield* mock;
      server.onModerate("hurt", {
        flagged: true,
        categories: { hate: true, "violence/graphic": true, violence: true, sexual: false },
        category_scores: { hate: 0.3, "violence/graphic": 0.9, violence: 0.5, sexual: 0.95 },
      });
      yield* Effect.gen(function* () {
        assert.deepStrictEqual(yield* check("How do I hurt him?"), {
          category: "violence/graphic",
          flagged: true,
        });
        assert.deepStrictEqual(yield* check("Hello"), { category: "none", flagged: false });
      }).pipe(at(`${server.baseUrl}/v1`));
      const [request] = server.getRequests();
      assert.strictEqual(request?.path, "/v1/moderations");
    }),
  );

  it.effect("a flagged question without a category is flagged", () =>
    Effect.gen(function* () {
      const { baseUrl, received } = yield* endpoint(
        json({ results: [{ flagged: true, categories: {} }] }),
      );
      assert.deepStrictEqual(yield* check("q").pipe(at(`${baseUrl}/`)), {
        category: "flagged",
        flagged: true,
      });
      assert.deepStrictEqual(received, [
        {
          url: "/v1/moderations",
          authorization: "Bearer sk-1",
          body: { model: "omni-moderation-latest", input: "q" },
        },
      ]);
    }),
  );

  const failures: Record<string, (response: ServerResponse) => void> = {
    "HTTP 500": json({ error: "secret question sk-1" }, 500),
    "HTTP 401": json({ error: "secret question sk-1" }, 401),
    "it cannot be reached": (response) => response.destroy(),
    "its answer makes no sense": json({ results: [] }),
    "it did not answer in time": () => {},
  };
  for (const [what, respond] of Object.entries(failures)) {
    it.effect(`fails, or passes every question if it is told to: ${what}`, () => {
      const logged: Array<string> = [];
      const logger = Logger.make((entry) => {
        logged.push(Logger.formatJson.log(entry));
      });
      return Effect.gen(function* () {
        const { baseUrl } = yield* endpoint(respond);
        const error = yield* Effect.flip(check("secret question")).pipe(at(baseUrl), (run) =>
          driven(run, 1000),
        );
        assert.instanceOf(error, AnswerUnavailable);
        assert.strictEqual(error.reason, `the moderation endpoint failed: ${what}`);
        assert.isTrue(error.passing);
        assert.deepStrictEqual(
          yield* driven(check("secret question").pipe(at(baseUrl, { failOpen: true })), 1000),
          { category: "none", flagged: false },
        );
        assert.strictEqual(logged.length, 1);
        assert.notMatch([...logged, JSON.stringify({ ...error })].join(), /secret|sk-1/);
      }).pipe(Effect.provide(Logger.layer([logger])));
    });
  }

  it.effect("waits for five seconds", () =>
    Effect.gen(function* () {
      const { baseUrl } = yield* endpoint(() => {});
      const fiber = yield* Effect.forkChild(Effect.exit(check("q").pipe(at(baseUrl))));
      yield* TestClock.adjust(4999);
      assert.isUndefined(fiber.pollUnsafe());
      yield* TestClock.adjust(1);
      assert.isDefined(fiber.pollUnsafe());
    }),
  );
});
