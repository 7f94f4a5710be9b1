/**
 * Failures of calls and when to retry them. A failure contains names, statuses and codes only: the message, body and
 * values of a provider's error may quote the chat, the instructions or the API key.
 */
import { AskDeadline } from "@parley/core";
import { Data, Duration, Effect, Schedule } from "effect";

/**
 * `transient`: the same call may soon succeed. `provider`: the provider fails every call. `question`: the failure says
 * nothing about the provider.
 */
const scopeOf = {
  network: "transient",
  /** The provider was silent for too long, or reported a timeout. */
  timeout: "transient",
  rate_limit: "transient",
  server_error: "transient",
  /** The answer stopped before the model had finished. */
  cut_off: "transient",
  empty: "transient",
  /** The model spent all tokens of its answer on reasoning. */
  reasoning_only: "question",
  bad_request: "question",
  /** A refused key, an unknown model, or a web site at the address. */
  client_error: "provider",
  /** The prompt is longer than the model's context. */
  context_length: "question",
  /** The provider refused the limit on the answer's length. */
  output_limit: "question",
  content_filter: "question",
  /** The model stopped for a reason that leaves no usable answer. */
  abnormal_end: "question",
  /** The provider was not called, because its circuit is open. */
  circuit_open: "question",
} as const;

/** Why a call failed: a closed set, so that it can be the attribute of a metric. */
export type FailureReason = keyof typeof scopeOf;

/** A call of a language model or of the moderation endpoint that failed. */
export class ModelFailure extends Data.TaggedError("ModelFailure")<{
  readonly reason: FailureReason;
  /** For logs. */
  readonly detail: string;
  /** The provider's `Retry-After`, in milliseconds. */
  readonly retryAfterMillis?: number | undefined;
}> {
  get retryable(): boolean {
    return scopeOf[this.reason] === "transient";
  }
  /** Whether the provider's circuit breaker counts this failure. */
  get countsAgainstProvider(): boolean {
    return scopeOf[this.reason] !== "question";
  }
}

export const makeFailure = (
  reason: FailureReason,
  detail: string,
  retryAfterMillis?: number,
): ModelFailure => new ModelFailure({ reason, detail, retryAfterMillis });

/** Classifies an error that the AI SDK threw or streamed. */
export const classifyError = (error: unknown): ModelFailure => {
  if (error instanceof ModelFailure) return error;
  const facts: Array<string> = [];
  /** The error's texts: they are searched, and never logged. */
  let quoted = typeof error === "string" ? error : "";
  let status: number | undefined;
  let headers: unknown;
  for (let e = error, depth = 0; isRecord(e) && depth < 4; e = e["cause"], depth++) {
    const { code, name, responseHeaders, statusCode } = e;
    if (e instanceof Error && /^\w{1,60}$/.test(`${name}`)) facts.push(`${name}`);
    if (typeof statusCode === "number") facts.push(`HTTP ${(status ??= statusCode)}`);
    if (typeof code === "string" && /^[A-Z][A-Z0-9_]{2,39}$/.test(code)) facts.push(code);
    headers ??= responseHeaders;
    facts.push(...codesIn(e["responseBody"]));
    for (const key of ["message", "code", "type", "responseBody"]) {
      if (typeof e[key] === "string") quoted += `\n${e[key].slice(0, 4000)}`;
    }
  }
  const detail = `the language model failed: ${facts.join(", ") || "an error of unknown kind"}`;
  if (status !== undefined && status >= 400) {
    return classifyResponse(status, headers, quoted, detail);
  }
  // An error inside a streamed response has no status of its own.
  if (contextLength.test(quoted)) return makeFailure("context_length", detail);
  return makeFailure(error instanceof Error ? "network" : "server_error", detail);
};

/** The codes in the body of a provider's error, such as `insufficient_quota`: identifiers, which quote nobody. */
export const codesIn = (body: unknown): ReadonlyArray<string> =>
  typeof body === "string"
    ? [...body.slice(0, 4000).matchAll(/"code"\s*:\s*"([a-z]{2,20}(?:_[a-z]{2,20}){1,4})"/g)].map(
        ([, code]) => code!,
      )
    : [];

/** Classifies an HTTP response that is no answer; `quoted` is searched and never logged. */
export const classifyResponse = (
  status: number,
  headers: unknown,
  quoted: string,
  detail: string,
): ModelFailure => {
  const wait = retryAfterMillis(headers);
  if (status === 408) return makeFailure("timeout", detail, wait);
  if (status === 429) return makeFailure("rate_limit", detail, wait);
  if (status >= 500) return makeFailure("server_error", detail, wait);
  if (status === 413) return makeFailure("context_length", detail);
  if (status !== 400 && status !== 422) return makeFailure("client_error", detail);
  if (contextLength.test(quoted)) return makeFailure("context_length", detail);
  return makeFailure(outputLimit.test(quoted) ? "output_limit" : "bad_request", detail);
};

const contextLength =
  /context_length_exceeded|context[ _](length|window|size)|maximum (context|prompt) length|(prompt|input|request) is too (long|large)|too many (input )?tokens|reduce the length/i;

/** Does not match a provider that rejects the parameter by name: such a provider fails every call. */
const outputLimit = /^(?![^]*(unsupported|not supported|unknown|unrecognized))[^]*max\w*_tokens/i;

const retryAfterMillis = (headers: unknown): number | undefined => {
  if (!isRecord(headers)) return undefined;
  const millis = Number.parseFloat(String(headers["retry-after-ms"]));
  if (millis >= 0) return millis;
  const value = headers["retry-after"];
  if (typeof value !== "string") return undefined;
  if (/^\s*\d+(\.\d+)?\s*$/.test(value)) return Number.parseFloat(value) * 1000;
  const date = Date.parse(value);
  return Number.isNaN(date) ? undefined : Math.max(0, date - Date.now());
};

const isRecord = (u: unknown): u is Record<string, unknown> => typeof u === "object" && u !== null;

/** How many calls may follow a failed one at the same provider by default. */
export const defaultRetries = 4;

/**
 * Pauses of 200 ms, 400 ms and so on, jittered, each on top of the failure's `Retry-After`. The schedule ends with a
 * failure that is not retryable, and when the next call would begin after the ask's deadline.
 */
export const retrySchedule = (retries: number) =>
  Schedule.exponential("200 millis").pipe(
    Schedule.setInputType<ModelFailure>(),
    Schedule.jittered,
    Schedule.upTo({ times: retries }),
    Schedule.addDelay(({ input }) => Effect.succeed(Duration.millis(input.retryAfterMillis ?? 0))),
    Schedule.while(({ duration, input, now }) =>
      Effect.map(
        AskDeadline,
        (deadline) => input.retryable && now + Duration.toMillis(duration) < deadline,
      ),
    ),
  );
