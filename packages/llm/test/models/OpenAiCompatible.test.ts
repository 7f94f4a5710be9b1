import { LLMock } from "@copilotkit/aimock";
import { assert, it } from "@effect/vitest";
import { Deferred, Effect, Layer, Logger, Redacted } from "effect";
import {
  layerLanguageModel,
  type LanguageModelOptions,
  openAiCompatible,
  tryModel,
} from "../../src/index.ts";
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

/** Asks a model at this endpoint; returns the answer or the reason of its failure. */
const answerAt = (baseUrl: string, options: LanguageModelOptions = {}, key?: string) =>
  Effect.gen(function* () {
    const apiKey = key === undefined ? undefined : Redacted.make(key);
    const model = yield* openAiCompatible({ baseUrl, apiKey, model: "small" });
    return yield* Effect.map(collect("Hi?"), textOf).pipe(
      Effect.provide(layerLanguageModel(model, options)),
    );
  }).pipe(
    Effect.catch((error) => Effect.succeed("reason" in error ? error.reason : error.message)),
    Effect.map((text) => text.replace("no language model answered: ", "")),
  );

/** Returns the text of an answer that consists of these chunks, or the reason why it failed. */
const endOf = Effect.fnUntraced(function* (...chunks: ReadonlyArray<object | string>) {
  const lines = chunks.map((chunk) =>
    typeof chunk === "string" ? chunk : JSON.stringify({ choices: [{ index: 0, ...chunk }] }),
  );
  const body = lines.map((line) => `data: ${line}\n\n`).join("");
  const { baseUrl } = yield* endpoint((response) => response.end(body));
  return yield* answerAt(baseUrl, { retries: 0 });
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

const chunk = (content: string, finish_reason: string | null = null) =>
  `data: ${JSON.stringify({ choices: [{ delta: { content }, finish_reason }] })}\n\n`;
const [before, after] = [chunk("Fi"), `${chunk("ne.", "stop")}data: [DONE]\n\n`];
const whole = { object: "chat.completion", choices: [{ message: { content: "Fine." } }] };
const oddities: Record<string, string> = {
  "null choices": `${before}data: {"choices":null}\n\n${after}`,
  "no choices": `${before}data: {"id":"1"}\n\n${after}`,
  "a null choice": `${before}data: {"choices":[null]}\n\n${after}`,
  "choices that are text": `${before}data: {"choices":"none"}\n\n${after}`,
  "a null delta": `${before}data: {"choices":[{"delta":null}]}\n\n${after}`,
  "a ping": `${before}event: ping\ndata: {"type":"ping"}\n\n${after}`,
  "a warning": `${before}data: {"warning":"slow"}\n\n${after}`,
  "a blank error": `${before}data: {"error":null}\n\ndata: {"error":{"code":0}}\n\n${after}`,
  "usage as text": `${before}data: {"usage":"none"}\n\n${after}`,
  "usage as an array": `${before}data: {"usage":[],"choices":[]}\n\n${after}`,
  "null in data": `${before}data: null\n\ndata: 1\n\ndata:\n\n${after}`,
  "an array of chunks": `${before}data: [{"choices":[]}]\n\n${after}`,
  "broken JSON": `${before}data: {"choices":[{"delta":{"con\n\n${after}`,
  "broken JSON without blank lines": `${before}data: {"choi\n${after}`,
  NaN: `data: {"choices":[{"delta":{"content":"Fi"},"logprobs":NaN}]}\n\n${after}`,
  "tool calls": `${before}data: {"choices":[{"delta":{"tool_calls":"x","content":null}}]}\n\n${after}`,
  "a comment and other fields": `: ok\nid: 3\nretry: 5\nfoo: bar\n\n${before}${after}`,
  "a byte order mark and CR": `\uFEFF${before}${after}`.replaceAll("\n", "\r"),
  "double data fields": `${before}${after}`.replaceAll("data: ", "data: data: "),
  "several lines of data": `data: {"choices":[\ndata: {"delta":{"content":"Fi"}}]}\n\n${after}`,
  "no blank lines": `${before}${after}`.replaceAll("\n\n", "\n"),
  "JSON lines": `${before}${after}`.replaceAll("data: ", "").replaceAll("\n\n", "\n"),
  "an error after the finish reason": `${before}${chunk("ne.", "stop")}data: {"error":"x"}\n\n`,
  "text after a finish reason": `${chunk("Fi", "stop")}${chunk("ne.", "stop")}`,
  "no finish reason before [DONE]": `${before}${chunk("ne.")}data: [DONE]\n\n`,
  "the whole answer at the end": `${before}${chunk("ne.")}data: ${JSON.stringify({
    choices: [{ message: { content: "Fine." }, finish_reason: "stop" }],
  })}\n\n`,
  "messages instead of deltas": `${before}${after}`.replaceAll('"delta"', '"message"'),
  "a line separator": `data: {"choices":[{"delta":{"content":"Fi"},"x":"\u2028"}]}\n\n${after}`,
  "a plain completion": JSON.stringify(whole),
  "a plain completion on several lines": JSON.stringify(whole, null, 2),
  "a plain completion in an event": `data: ${JSON.stringify(whole)}\n\ndata: [DONE]\n\n`,
  "a legacy completion": '{"choices":[{"text":"Fine.","finish_reason":"length"}]}',
  "parts of content": '{"choices":[{"message":{"content":[{"type":"text","text":"Fine."}]}}]}',
  "a refusal in words": '{"choices":[{"message":{"content":null,"refusal":"Fine."}}]}',
};
for (const [name, body] of Object.entries(oddities)) {
  it.live(`openAiCompatible reads a response with ${name}`, () =>
    Effect.gen(function* () {
      const { baseUrl, received } = yield* endpoint((response) => response.end(body));
      assert.strictEqual(yield* answerAt(baseUrl), "Fine.");
      assert.strictEqual(received.length, 1);
    }),
  );
}

for (const end of ["data: [DONE]\n\n", ""]) {
  it.live(`openAiCompatible needs no end of the connection after ${end || "a finish reason"}`, () =>
    Effect.gen(function* () {
      const closed = yield* Deferred.make<void>();
      const { baseUrl, received } = yield* endpoint((response) => {
        response.write(`${before}${chunk("ne.", "stop")}${end}`);
        response.on("close", () => Deferred.doneUnsafe(closed, Effect.void));
      });
      // The endpoint never ends its response.
      assert.strictEqual(yield* answerAt(baseUrl), "Fine.");
      assert.strictEqual(received.length, 1);
      yield* Deferred.await(closed);
    }),
  );
}

for (const [body, reason] of [
  [
    '{"error":{"message":"Hi?","type":"invalid_key","code":"no_such_model"}}',
    "invalid_key, no_such_model",
  ],
  ['{"error":"overloaded"}', "overloaded"],
  ['{"detail":"Hi?","code":"model_gone"}', "model_gone"],
  ['{"error":{"code":"Hi?","param":"messages[0].content"}}', "param messages[0].content"],
] as const) {
  it.live(
    `openAiCompatible asks once and names the error in a response with status 200: ${body}`,
    () =>
      Effect.gen(function* () {
        const { baseUrl, received } = yield* endpoint((response) => response.end(body));
        assert.strictEqual(yield* answerAt(baseUrl), reason);
        assert.strictEqual(received.length, 1);
      }),
  );
}

const rejections: Record<string, object> = {
  "a param": { error: { message: "no", param: "$", code: "unsupported_parameter" } },
  "a place": { detail: [{ type: "extra_forbidden", loc: ["body", "$"], msg: "no" }] },
  "its text": { error: { message: "Unsupported: $. Use max_tokens or max_completion_tokens." } },
};
for (const [name, body] of Object.entries(rejections)) {
  for (const parameter of ["max_tokens", "stream_options"]) {
    it.live(`openAiCompatible does without ${parameter} if an error names it in ${name}`, () => {
      const logged: Array<string> = [];
      const logger = Logger.make((entry) => void logged.push(`${entry.message}`));
      return Effect.gen(function* () {
        const { baseUrl, received } = yield* endpoint((response, { body: sent }) => {
          const isRejected = parameter in (sent as object);
          if (!isRejected) return response.end(`${before}${after}`);
          return response.writeHead(400).end(JSON.stringify(body).replace("$", parameter));
        });
        const model = yield* openAiCompatible({ baseUrl, apiKey: undefined, model: "small" });
        yield* Effect.gen(function* () {
          assert.strictEqual(textOf(yield* collect("Hi?")), "Fine.");
          assert.strictEqual(textOf(yield* collect("Hi?")), "Fine.");
        }).pipe(Effect.provide(layerLanguageModel(model, { maxOutputTokens: 500 })));
        assert.strictEqual(received.length, 3);
        const { max_tokens, max_completion_tokens, stream_options } = received[2]!.body as any;
        assert.deepStrictEqual(
          [max_tokens, max_completion_tokens, stream_options],
          parameter === "max_tokens"
            ? [undefined, 500, { include_usage: true }]
            : [500, undefined, undefined],
        );
        assert.strictEqual(logged.filter((text) => text.includes(parameter)).length, 1);
      }).pipe(Effect.provide(Logger.layer([logger])));
    });
  }
}

for (const [suffix, url] of [
  ["/v1", "/v1/chat/completions"],
  ["/v1/", "/v1/chat/completions"],
  ["//v1//", "/v1/chat/completions"],
  ["/v1/v1", "/v1/chat/completions"],
  ["/v1/chat/completions", "/v1/chat/completions"],
  ["/v1?api-version=2025-01-01", "/v1/chat/completions?api-version=2025-01-01"],
  ["/openai/v4/", "/openai/v4/chat/completions"],
  ["/v1beta/openai", "/v1beta/openai/chat/completions"],
  ["", "/v1/chat/completions"],
  ["/?key=a", "/v1/chat/completions?key=a"],
  ["/proxy/", "/proxy/chat/completions"],
  ["/proxy", "/proxy/v1/chat/completions"],
] as const) {
  for (const nothing of [404, 405]) {
    it.live(`openAiCompatible finds ${url} for ${suffix}, where others get HTTP ${nothing}`, () =>
      Effect.gen(function* () {
        const { baseUrl, received } = yield* endpoint((response, request) => {
          if (request.url === url) return response.end(`${before}${after}`);
          response.writeHead(nothing, { "content-type": "application/json" });
          return response.end('{"error":"Unexpected endpoint or method."}');
        });
        const address = baseUrl.replace("/v1", suffix);
        const model = yield* openAiCompatible({ baseUrl: address, apiKey: undefined, model: "m" });
        yield* Effect.gen(function* () {
          const calls = [textOf(yield* collect("Hi?")), received.length];
          assert.strictEqual(calls[0], "Fine.");
          yield* collect("Hi?");
          // The address is remembered.
          assert.strictEqual(received.length, Number(calls[1]) + 1);
        }).pipe(Effect.provide(layerLanguageModel(model)));
      }),
    );
  }
}

it.live("openAiCompatible reports the first address if no other has a model, either", () =>
  Effect.gen(function* () {
    const body = '{"error":{"type":"invalid_request_error","code":"model_not_found"}}';
    const { baseUrl, received } = yield* endpoint((response) => response.writeHead(404).end(body));
    const reason = yield* answerAt(baseUrl.replace("/v1", ""));
    assert.include(reason, "HTTP 404, invalid_request_error, model_not_found");
    assert.strictEqual(received.length, 2);
  }),
);

it.effect("openAiCompatible refuses an address or a key that cannot work, and says why", () =>
  Effect.gen(function* () {
    assert.include(yield* answerAt("localhost:11434/v1"), "use http://localhost:11434/v1");
    assert.include(yield* answerAt("llm"), "use http://llm");
    const reason = yield* answerAt("http://localhost/v1?secret", {}, "sk-1234…9");
    assert.include(reason, 'character 8 of the API key for http://localhost/v1 is "…" (U+2026)');
    assert.notInclude(reason, "1234");
  }),
);

it.live(
  "openAiCompatible logs what identifies a failure, but no text and no word of the chat",
  () =>
    Effect.gen(function* () {
      const details = { type: "invalid_request_error", code: "bad_value", param: "messages[0]" };
      const { baseUrl } = yield* endpoint((response) =>
        response
          .writeHead(400, { "x-request-id": "req_1-2" })
          .end(JSON.stringify({ error: { message: "about Hi?", ...details, status: "Hi?" } })),
      );
      assert.strictEqual(
        yield* answerAt(baseUrl),
        "HTTP 400, invalid_request_error, bad_value, param messages[0], request req_1-2",
      );
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
