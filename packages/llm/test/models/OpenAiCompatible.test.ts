import { LLMock } from "@copilotkit/aimock";
import { assert, it } from "@effect/vitest";
import { Deferred, Effect, Layer, Redacted } from "effect";
import { layerLanguageModel, openAiCompatible, tryModel } from "../../src/index.ts";
import { collect, textOf } from "../support/chat.ts";
import { endpoint } from "../support/endpoint.ts";

const withEndpoint = (baseUrl: string, model = "small") => {
  const makeModel = openAiCompatible({
    baseUrl,
    apiKey: Redacted.make("sk-1"),
    model,
    provider: "house",
  });
  const options = { retries: 1, maxOutputTokens: 500 };
  return Effect.provide(
    Layer.unwrap(Effect.map(makeModel, (model) => layerLanguageModel(model, options))),
  );
};

it.live("openAiCompatible streams an answer from a server, and retries if it is cut off", () =>
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

it.effect(
  "openAiCompatible does not follow redirects, which would send the chat to another address",
  () =>
    Effect.gen(function* () {
      const other = yield* endpoint((response) => response.writeHead(500).end("{}"));
      const { baseUrl, received } = yield* endpoint((response) => {
        response.writeHead(307, { location: `${other.baseUrl}/chat/completions` }).end();
      });
      const error = yield* Effect.flip(collect("Hi?")).pipe(withEndpoint(baseUrl));
      assert.propertyVal(error, "reason", "no language model answered: HTTP 307");
      assert.deepStrictEqual([received.length, other.received.length], [1, 0]);
    }),
);

it.live(
  "openAiCompatible sends no key if there is none, and closes the connection after the idle timeout",
  () =>
    Effect.gen(function* () {
      const closed = yield* Deferred.make<void>();
      const { baseUrl, received } = yield* endpoint((response) => {
        response.on("close", () => Deferred.doneUnsafe(closed, Effect.void));
      });
      const model = yield* openAiCompatible({ baseUrl, apiKey: undefined, model: "small" });
      yield* Effect.gen(function* () {
        const error = yield* Effect.flip(collect("Hi?"));
        assert.propertyVal(error, "reason", "no language model answered: no response for 1000 ms");
        yield* Deferred.await(closed);
        assert.isUndefined(received[0]?.authorization);
      }).pipe(Effect.provide(layerLanguageModel(model, { idleTimeout: 1000, retries: 0 })));
    }),
);

/** Returns the text of an answer that consists of these chunks, or the reason why it failed. */
const endOf = Effect.fnUntraced(function* (...chunks: ReadonlyArray<object | string>) {
  const { baseUrl } = yield* endpoint((response) => {
    response.writeHead(200, { "content-type": "text/event-stream" });
    const lines = chunks.map((chunk) =>
      typeof chunk === "string" ? chunk : JSON.stringify({ choices: [{ index: 0, ...chunk }] }),
    );
    response.end(lines.map((line) => `data: ${line}\n\n`).join(""));
  });
  const model = yield* openAiCompatible({ baseUrl, apiKey: undefined, model: "small" });
  return yield* collect("Hi?").pipe(
    Effect.match({
      onSuccess: textOf,
      onFailure: (error) =>
        ("reason" in error ? error.reason : `${error}`).replace("no language model answered: ", ""),
    }),
    Effect.provide(layerLanguageModel(model, { retries: 0 })),
  );
});
const text = { delta: { content: "Fine." }, finish_reason: null };
const last = (finish_reason: string | null) => ({ delta: {}, finish_reason });

const done = "eos_token eos end  end_turn STOP COMPLETE null max_tokens stop_sequence normal";
for (const word of done.split(" ")) {
  it.live(`openAiCompatible accepts an answer that ends with ${JSON.stringify(word)}`, () =>
    Effect.gen(function* () {
      assert.strictEqual(yield* endOf(text, last(word), "[DONE]"), "Fine.");
    }),
  );
}

const filterWords =
  "content_filter content-filter SAFETY RECITATION PROHIBITED_CONTENT BLOCKLIST SPII refusal " +
  "guardrail_intervened malicious sensitive ERROR_TOXIC";
const failureWords =
  "error abort aborted cancelled USER_CANCEL network_error insufficient_system_resource overloaded " +
  "killed tool_calls tool_use MALFORMED_FUNCTION_CALL";
const filtered = (word: string) => `a content filter stopped the answer: ${word}`;
const abnormal = (word: string) => `the answer ended abnormally: ${word}`;
const brokenOff = "the answer was cut off";
const blank = { ...text, finish_reason: "" };
const failures: ReadonlyArray<readonly [string, ReadonlyArray<object | string>, string]> = [
  ...filterWords
    .split(" ")
    .map((word) => [`with ${word}`, [text, last(word), "[DONE]"], filtered(word)] as const),
  ...failureWords
    .split(" ")
    .map((word) => [`with ${word}`, [text, last(word), "[DONE]"], abnormal(word)] as const),
  ["with an error message", [text, last("error: the prompt was Hi?"), "[DONE]"], abnormal("other")],
  ["without a finish_reason or [DONE]", [text], brokenOff],
  ["after chunks that all have an empty finish_reason", [blank, blank], brokenOff],
  ["with no text", [last("eos"), "[DONE]"], "the answer is empty"],
];
for (const [name, chunks, reason] of failures) {
  it.live(`openAiCompatible rejects an answer that ends ${name}`, () =>
    Effect.gen(function* () {
      assert.strictEqual(yield* endOf(...chunks), reason);
    }),
  );
}

it.live(
  "openAiCompatible accepts an answer whose chunks all have an empty finish_reason, if the last chunk has no text",
  () =>
    Effect.gen(function* () {
      assert.strictEqual(yield* endOf(blank, blank, last(""), "[DONE]"), "Fine.Fine.");
    }),
);

it.live("openAiCompatible explains why a model cannot be reached", () =>
  Effect.gen(function* () {
    const page = yield* endpoint((response) => {
      response.writeHead(200, { "content-type": "text/html" }).end("<html>Sign in</html>");
    });
    const gateway = yield* endpoint((response) => {
      response.writeHead(502, { "content-type": "text/html" }).end("<html>Bad gateway</html>");
    });
    const reset = yield* endpoint((response) => response.destroy());
    const away = yield* Effect.scoped(endpoint(() => {}));
    const reasonAt = Effect.fnUntraced(function* (baseUrl: string) {
      const model = yield* openAiCompatible({ baseUrl, apiKey: undefined, model: "small" });
      return (yield* Effect.flip(tryModel(model))).detail;
    });
    for (const [baseUrl, reason] of [
      [away.baseUrl, "connection refused (ECONNREFUSED)"],
      [away.baseUrl.replace("127.0.0.1", "localhost"), "connection refused (ECONNREFUSED)"],
      ["http://127.0.0.1:1/v1", "bad port"],
      ["http://no-such-host.invalid/v1", "unknown host (ENOTFOUND)"],
      [page.baseUrl.replace("http", "https"), "TLS failed (ERR_SSL_WRONG_VERSION_NUMBER)"],
      [page.baseUrl, "the address returned an HTML page"],
      [gateway.baseUrl, "HTTP 502, HTML page"],
      [reset.baseUrl, "connection closed (UND_ERR_SOCKET)"],
    ] as const) {
      assert.strictEqual(yield* reasonAt(baseUrl), reason, baseUrl);
    }
  }),
);
