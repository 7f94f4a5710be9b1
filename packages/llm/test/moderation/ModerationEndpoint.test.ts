import type { ServerResponse } from "node:http";
import { AnswerUnavailable, AskDeadline, Moderator } from "@parley/core/ports";
import { assert, it } from "@effect/vitest";
import { Clock, Duration, Effect, Logger, Redacted } from "effect";
import { layerModerationEndpoint, type ModerationEndpointSettings } from "../../src/index.ts";
import { chatbotWith } from "../support/chat.ts";
import { driven } from "../support/driven.ts";
import { endpoint } from "../support/endpoint.ts";

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

const json =
  (value: unknown, status = 200) =>
  (response: ServerResponse) =>
    response.writeHead(status, { "content-type": "application/json" }).end(JSON.stringify(value));

for (const [name, result, expected] of [
  [
    "returns the flagged category with the highest score",
    {
      flagged: true,
      categories: { hate: true, "violence/graphic": true, violence: true, sexual: false },
      category_scores: { hate: 0.3, "violence/graphic": 0.9, violence: 0.5, sexual: 0.95 },
    },
    "violence/graphic",
  ],
  [
    "flags a question even if the endpoint names no category",
    { flagged: true, categories: {} },
    "flagged",
  ],
  [
    "passes a question that the endpoint does not flag",
    { flagged: false, categories: { hate: false } },
    "none",
  ],
] as const) {
  it.effect(`layerModerationEndpoint ${name}`, () =>
    Effect.gen(function* () {
      const { baseUrl, received } = yield* endpoint(json({ results: [result] }));
      assert.deepStrictEqual(yield* check("q").pipe(at(`${baseUrl}/`)), {
        category: expected,
        flagged: result.flagged,
      });
      const body = { model: "omni-moderation-latest", input: "q" };
      assert.deepStrictEqual(received, [
        { url: "/v1/moderations", authorization: "Bearer sk-1", body },
      ]);
    }),
  );
}

for (const [body, category] of [
  [{ results: [{ categories: { hate: true, law: false } }] }, "hate"],
  [{ results: [{ categories: { hate: false } }] }, "none"],
  [{ results: { flagged: "true", categories: null } }, "flagged"],
  [{ flagged: false, categories: { hate: 0.1 }, category_scores: "none" }, "none"],
  [
    { results: [{ flagged: 1, categories: { hate: "yes" }, category_scores: { hate: "0.9" } }] },
    "hate",
  ],
  [{ error: null, warning: "x", results: [{ flagged: false, categories: [] }] }, "none"],
] as const) {
  it.effect(`layerModerationEndpoint reads ${JSON.stringify(body)}`, () =>
    Effect.gen(function* () {
      const { baseUrl } = yield* endpoint(json(body));
      assert.strictEqual((yield* check("q").pipe(at(`${baseUrl}?v=1`))).category, category);
    }),
  );
}

const failures: Record<string, readonly [(response: ServerResponse) => void, calls: number]> = {
  "HTTP 500": [json({ error: "secret question sk-1" }, 500), 5],
  "HTTP 401": [json({ error: "secret question sk-1" }, 401), 1],
  "connection closed (UND_ERR_SOCKET)": [(response) => response.destroy(), 5],
  "unexpected response": [json({ results: [] }), 1],
  quota_spent: [json({ error: { message: "secret question", code: "quota_spent" } }), 1],
  "no response within 5 seconds": [() => {}, 1],
};
for (const [reason, [respond, calls]] of Object.entries(failures)) {
  it.effect(
    `on "${reason}", layerModerationEndpoint fails or, with failOpen, logs a warning and flags nothing`,
    () => {
      const logged: Array<string> = [];
      const logger = Logger.make((entry) => {
        logged.push(Logger.formatJson.log(entry));
      });
      return Effect.gen(function* () {
        const { baseUrl, received } = yield* endpoint(respond);
        const run = (more: Partial<ModerationEndpointSettings>) =>
          driven(check("secret question").pipe(at(baseUrl, more)));
        const error = yield* Effect.flip(run({}));
        assert.instanceOf(error, AnswerUnavailable);
        assert.include(error.reason, `the moderation endpoint failed: ${reason}`);
        // `fetch` itself may retry a request if the connection was closed.
        if (!reason.startsWith("connection")) assert.strictEqual(received.length, calls);
        assert.isFalse((yield* run({ failOpen: true })).flagged);
        assert.strictEqual(logged.length, 1);
        assert.notMatch([...logged, JSON.stringify({ ...error })].join(), /secret|sk-1/);
      }).pipe(Effect.provide(Logger.layer([logger])));
    },
  );
}

for (const [name, seconds, status, headers] of [
  ["asks for a pause of 25 seconds", 0, 429, { "retry-after": "25" }],
  ["fails slowly", 4, 500, {}],
] as const) {
  for (const [deadline, limit] of [
    [15_000, 5000],
    [30_000, 10_000],
    [Infinity, 10_000],
  ] as const) {
    it.effect(
      `if the endpoint ${name}, a question passes unflagged with failOpen after at most ${limit} ms of ${deadline}`,
      () =>
        Effect.gen(function* () {
          const context = yield* Effect.context();
          const { baseUrl } = yield* endpoint((response) => {
            Effect.sync(() => response.writeHead(status, headers).end("{}")).pipe(
              Effect.delay(Duration.seconds(seconds)),
              Effect.runForkWith(context),
            );
          });
          const { flagged } = yield* driven(check("q").pipe(at(baseUrl, { failOpen: true }))).pipe(
            Effect.provideService(AskDeadline, deadline),
          );
          assert.isFalse(flagged);
          assert.isAtMost(yield* Clock.currentTimeMillis, limit);
        }),
    );
  }
}
