/**
 * Responses in the shapes of endpoints that are compatible with OpenAI's, written from their documentation and from
 * public reports. Every text is ours.
 */

/** A response with an error: its status, body and headers. */
export type Failure = readonly [status: number, body: unknown, headers?: Record<string, string>];

/** The shape of an endpoint. What it leaves out is OpenAI's. */
export interface Shape {
  /** Fields of every chunk beside `choices`. */
  readonly more?: object;
  /** Lines before the first chunk. */
  readonly before?: string;
  readonly delta?: (text: string) => object;
  readonly reasoning?: (text: string) => object;
  readonly choice?: object;
  /** The finish reasons of a whole answer, of one that reached its limit, and of a refusal. */
  readonly stop?: string;
  readonly length?: string;
  readonly refusal?: string;
  /** Chunks after the one with the finish reason. */
  readonly after?: ReadonlyArray<object>;
  /** The line at the end; `null` if the connection just ends. */
  readonly done?: string | null;
  readonly lineEnd?: string;
  /** An error before the stream that may be over soon, and one within it. */
  readonly before5xx?: Failure;
  readonly within?: string;
  readonly tooLong?: Failure;
  readonly rate?: Failure;
  readonly quota?: Failure;
}

const error = (message: string, more: object = {}) => ({ error: { message, ...more } });
const usage = { prompt_tokens: 21, completion_tokens: 5, total_tokens: 26 };
const event = (value: unknown) => `data: ${JSON.stringify(value)}\n\n`;

const openAi = {
  more: { id: "chatcmpl-1", object: "chat.completion.chunk", created: 1, model: "m" },
  before: "",
  delta: (content: string): object => ({ content }),
  reasoning: (reasoning_content: string): object => ({ content: null, reasoning_content }),
  choice: { logprobs: null },
  stop: "stop",
  length: "length",
  refusal: "content_filter",
  after: [{ choices: [], usage }] as ReadonlyArray<object>,
  done: "data: [DONE]" as string | null,
  lineEnd: "\n",
  before5xx: [503, error("Overloaded.", { type: "server_error", code: null })] as Failure,
  within: event(error("It broke.", { type: "server_error", param: null, code: null })),
  tooLong: [400, error("Too much.", { param: "messages", code: "context_length_exceeded" })],
  rate: [429, error("Slow down.", { code: "rate_limit_exceeded" }), { "retry-after": "1" }],
  quota: [429, error("Pay.", { type: "insufficient_quota", code: "insufficient_quota" })],
} satisfies Required<Shape>;

const shapes: Readonly<Record<string, Shape>> = {
  OpenAI: {
    more: { ...openAi.more, service_tier: "default", obfuscation: "x9" },
  },
  Azure: {
    before: event({ choices: [], prompt_filter_results: [{ prompt_index: 0 }] }),
    choice: { content_filter_offsets: { check_offset: 1 }, content_filter_results: {} },
    tooLong: [400, error("Too much.", { code: "context_length_exceeded", status: 400 })],
    rate: [429, error("Slow down.", { code: "429" }), { "retry-after": "1" }],
    quota: [429, error("Pay.", { code: "insufficient_quota" })],
  },
  Gemini: {
    delta: (content) => ({ content, role: "assistant" }),
    done: "data: [DONE]",
    refusal: "content_filter: SAFETY",
    before5xx: [503, [{ error: { code: 503, message: "Busy.", status: "UNAVAILABLE" } }]],
    within: event([{ error: { code: 503, message: "Busy.", status: "UNAVAILABLE" } }]),
    tooLong: [
      400,
      [
        {
          error: {
            code: 400,
            message: "The input token count exceeds.",
            status: "INVALID_ARGUMENT",
          },
        },
      ],
    ],
    rate: [429, [{ error: { code: 429, message: "Slow.", status: "RESOURCE_EXHAUSTED" } }]],
    quota: [403, [{ error: { code: 403, message: "Pay.", status: "BILLING_DISABLED" } }]],
  },
  Anthropic: {
    refusal: "refusal",
    before5xx: [529, { type: "error", error: { type: "overloaded_error", message: "Busy." } }],
    within: `event: error\n${event({ type: "error", error: { type: "overloaded_error" } })}`,
    tooLong: [400, { type: "error", error: { type: "invalid_request_error", message: "Long." } }],
    rate: [429, { type: "error", error: { type: "rate_limit_error" } }, { "retry-after": "1" }],
    quota: [402, { type: "error", error: { type: "billing_error", message: "Pay." } }],
  },
  Mistral: {
    delta: (text) => ({ content: [{ type: "text", text }] }),
    reasoning: (text) => ({
      content: [{ type: "thinking", thinking: [{ type: "text", text }] }],
    }),
    length: "model_length",
    refusal: "content_filter",
    before5xx: [
      503,
      { object: "error", message: "Busy.", type: "unreachable_backend", code: "1100" },
    ],
    within: event({ object: "error", message: "Busy.", type: "unreachable_backend", code: "1100" }),
    tooLong: [
      422,
      { object: "error", message: { detail: [{ type: "value_error", loc: ["body"] }] } },
    ],
    rate: [429, { object: "error", message: "Slow.", type: "rate_limited", code: "1300" }],
    quota: [402, { detail: "Pay." }],
  },
  Groq: {
    more: { x_groq: { id: "req_1" } },
    reasoning: (reasoning) => ({ reasoning, channel: "analysis" }),
    after: [{ choices: [], usage: { queue_time: 0.1, ...usage }, x_groq: { usage } }],
    before5xx: [503, error("Busy.", { type: "internal_server_error" })],
    tooLong: [413, error("Too large.", { type: "tokens", code: "rate_limit_exceeded" })],
    rate: [
      429,
      error("Slow.", { type: "tokens", code: "rate_limit_exceeded" }),
      { "retry-after": "1" },
    ],
    quota: [400, error("Pay.", { code: "spend_quota_reached" })],
  },
  OpenRouter: {
    before: ": OPENROUTER PROCESSING\n\n",
    more: { provider: "Some", native_finish_reason: null },
    reasoning: (text) => ({ content: "", reasoning: text, reasoning_details: [{ text }] }),
    choice: { native_finish_reason: "end_turn" },
    before5xx: [502, error("Down.", { code: 502, metadata: { provider_name: "Some" } })],
    within: event({
      error: { code: 502, message: "Down." },
      choices: [{ delta: { content: "" }, finish_reason: "error" }],
    }),
    tooLong: [400, error("Long.", { code: 400, metadata: { raw: "{}" } })],
    rate: [429, error("Slow.", { code: 429 })],
    quota: [402, error("Pay.", { code: 402 })],
  },
  DeepSeek: {
    before: ": keep-alive\n\n",
    refusal: "content_filter",
    after: [{ choices: [], usage: { ...usage, prompt_cache_hit_tokens: 0 } }],
    tooLong: [
      400,
      error("Long.", { type: "invalid_request_error", param: null, code: "invalid_request_error" }),
    ],
    quota: [
      402,
      error("Insufficient Balance", { type: "unknown_error", code: "invalid_request_error" }),
    ],
  },
  Together: {
    stop: "eos",
    after: [],
    choice: { text: "ignored", seed: "12", index: "0" },
    more: { usage: null, warning: null, error: null },
    tooLong: [
      422,
      error("Input validation error", { type: "invalid_request_error", param: "max_new" }),
    ],
    quota: [402, error("Pay.", { type: "credit_limit" })],
  },
  Fireworks: {
    more: { perf_metrics: null },
    after: [],
    tooLong: [400, { error: { object: "error", type: "invalid_request_error", message: "Long." } }],
    quota: [412, error("Suspended.", { code: "BILLING_SUSPENDED" })],
  },
  Ollama: {
    reasoning: (reasoning) => ({ role: "assistant", content: "", reasoning }),
    refusal: "content_filter",
    before5xx: [
      500,
      error("model runner has unexpectedly stopped", { type: "api_error", param: null }),
    ],
    within: event({ error: "an error was encountered while running the model" }),
    tooLong: [400, { error: "the input length exceeds the context length" }],
  },
  vLLM: {
    choice: { token_ids: null, stop_reason: 128_009 },
    more: { prompt_token_ids: null, usage: { ...usage, completion_tokens: "1" } },
    before5xx: [500, { object: "error", message: "Dead.", type: "InternalServerError", code: 500 }],
    within: event({ object: "error", message: "Dead.", type: "InternalServerError", code: 500 }),
    tooLong: [400, { object: "error", message: "Long.", type: "BadRequestError", code: 400 }],
  },
  "llama.cpp": {
    more: { timings: { predicted_ms: 3 }, system_fingerprint: "b1" },
    before5xx: [503, error("Loading model", { code: 503, type: "unavailable_error" })],
    within: event(error("Broken.", { code: 500, type: "server_error" })),
    tooLong: [400, error("Long.", { code: 400, type: "exceed_context_size_error", n_ctx: 4096 })],
  },
  "LM Studio": {
    more: { stats: {}, system_fingerprint: "m" },
    after: [],
    within: `event: error\n${event({ error: { message: "Crashed." }, message: "Crashed." })}`,
    tooLong: [400, { error: "Trying to keep the first 9000 tokens" }],
  },
  TGI: {
    stop: "eos_token",
    choice: { logprobs: null },
    after: [],
    before5xx: [503, { error: "Busy", error_type: "overloaded" }],
    within: event({ error: "Request failed during generation", error_type: "generation" }),
    tooLong: [422, { error: "Input validation error", error_type: "validation" }],
    rate: [429, { error: "Model is overloaded", error_type: "overloaded" }],
    lineEnd: "\r\n",
  },
  LiteLLM: {
    more: { citations: null, provider_specific_fields: null },
    after: [{ choices: [{ index: 0, delta: {} }], usage }],
    before5xx: [500, error("Down.", { type: null, param: null, code: "500" })],
    within: event(error("Down.", { type: "None", param: "None", code: "500" })),
    tooLong: [400, error("ContextWindow", { type: null, param: null, code: "400" })],
    rate: [429, error("Slow.", { type: "throttling_error", code: "429" })],
    quota: [400, error("Budget.", { type: "budget_exceeded", code: "400" })],
  },
  Cloudflare: {
    more: { response: null, tool_calls: [], p: "ab" },
    after: [{ response: "", usage }],
    before5xx: [
      500,
      { success: false, errors: [{ code: 3040, message: "Capacity." }], result: null },
    ],
    within: event({ success: false, errors: [{ code: 3040, message: "Capacity." }], result: {} }),
    tooLong: [413, { success: false, errors: [{ code: 5021, message: "Long." }] }],
    rate: [429, { success: false, errors: [{ code: 3036, message: "Slow." }] }],
    quota: [402, { success: false, errors: [{ code: 3036, message: "Pay." }] }],
  },
  Bedrock: {
    stop: "end_turn",
    length: "max_tokens",
    refusal: "guardrail_intervened",
    before5xx: [503, { message: "Busy.", __type: "ServiceUnavailableException" }],
    within: event({ error: { message: "Busy.", type: "ModelStreamErrorException" } }),
    tooLong: [400, { message: "Long.", type: "ValidationException" }],
    rate: [429, { message: "Slow.", type: "ThrottlingException" }],
    quota: [400, { message: "Pay.", type: "ServiceQuotaExceededException" }],
  },
  Zhipu: {
    refusal: "sensitive",
    more: { request_id: "r1" },
    after: [],
    choice: { delta_type: 1 },
    within: event({ error: { code: "1234", message: "Network." } }),
    tooLong: [400, error("Long.", { code: "1261" })],
    rate: [429, error("Slow.", { code: "1302" })],
    quota: [429, error("Pay.", { code: "1113" })],
  },
  Qwen: {
    before: "id:1\nevent:result\n:HTTP_STATUS/200\n",
    done: "data:[DONE]",
    within: event({
      code: "InternalError.Algo",
      message: "Broken.",
      request_id: "r1",
      type: "error",
    }),
    tooLong: [
      400,
      error("Range.", { code: "invalid_parameter_error", param: null, type: "invalid" }),
    ],
    rate: [429, error("Slow.", { code: "limit_requests", type: "limit_requests" })],
    quota: [400, error("Pay.", { code: "Arrearage", type: "Arrearage" })],
  },
  MiniMax: {
    more: { input_sensitive: false, base_resp: { status_code: 0, status_msg: "" } },
    after: [],
    done: null,
    tooLong: [400, error("Long.", { type: "bad_request_error", code: "2013" })],
    quota: [429, error("Pay.", { type: "insufficient_balance_error", code: "1008" })],
  },
};

export const endpoints = Object.entries(shapes).map(([name, shape]) => {
  const all: Required<Shape> = { ...openAi, ...shape };
  const lines = (text: string) => text.replaceAll("\n", all.lineEnd);
  const chunk = (delta: object, finish_reason: string | null = null) =>
    lines(event({ ...all.more, choices: [{ index: 0, ...all.choice, delta, finish_reason }] }));
  const end = (finish: string) => [
    chunk({}, finish),
    ...all.after.map((value) => lines(event({ ...all.more, ...value }))),
    ...(all.done === null ? [] : [lines(`${all.done}\n\n`)]),
  ];
  const texts = ["Hel", "lo"].map((text) => chunk(all.delta(text)));
  const start = [lines(all.before), chunk({ role: "assistant", content: "" })];
  return {
    name,
    ...all,
    answer: [...start, ...texts, ...end(all.stop)],
    cutByLength: [...start, ...texts, ...end(all.length)],
    refused: [...start, texts[0]!, ...end(all.refusal)],
    broken: [...start, texts[0]!, lines(all.within)],
    reasoned: (count: number) => [
      ...start,
      ...Array.from({ length: count }, () => chunk(all.reasoning("Hm."))),
      ...texts,
      ...end(all.stop),
    ],
    onlyReasoned: [...start, chunk(all.reasoning("Hm.")), ...end(all.length)],
  };
});
