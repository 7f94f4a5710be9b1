/**
 * Failed calls, and when a call is retried. A failure contains only names, statuses and codes: the message, body and
 * values of a provider's error may quote the chat, the instructions or the API key.
 */
import { AskDeadline } from "@parley/core/ports";
import { Data, Duration, Effect, Schedule } from "effect";

/**
 * `transient` means that the same call may soon succeed and is retried, `provider` that the provider fails every call,
 * and `question` that the failure says nothing about the provider, whose circuit breaker ignores it.
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
  /** The model used up its output tokens on reasoning. */
  reasoning_only: "question",
  bad_request: "question",
  /** For example a redirect, an HTML page, a rejected key or an unknown model. */
  client_error: "provider",
  context_length: "question",
  content_filter: "question",
  /** The call ended in some other way without a usable answer. */
  abnormal_end: "question",
  /** The provider was not called, because its circuit is open, or half-open while another call tries the provider. */
  circuit_open: "question",
} as const;

/** Why a call failed. The set is closed, so that a reason can be a metric attribute. */
export type FailureReason = keyof typeof scopeOf;
export const failureReasons = Object.keys(scopeOf) as ReadonlyArray<FailureReason>;

/** The token usage of a call, as reported by the provider. */
export interface Tokens {
  readonly prompt: number;
  readonly completion: number;
}

/** A failed call to a language model or to the moderation endpoint. */
export class ModelFailure extends Data.TaggedError("ModelFailure")<{
  readonly reason: FailureReason;
  readonly detail: string;
  /** The provider's `Retry-After`, in milliseconds. */
  readonly retryAfterMillis?: number | undefined;
  /** The token usage of the failed call, if the provider reported it. */
  readonly tokens?: Tokens | undefined;
}> {
  get scope() {
    return scopeOf[this.reason];
  }
}

export const makeFailure = (reason: FailureReason, detail: string): ModelFailure =>
  new ModelFailure({ reason, detail });

export const cutOff = makeFailure("cut_off", "the answer was cut off");

/** Readable descriptions of Node's network error codes. */
const meanings: ReadonlyArray<readonly [RegExp, string]> = [
  [/^ECONNREFUSED$/, "connection refused"],
  [/^(ECONNRESET|EPIPE|UND_ERR_SOCKET)$/, "connection closed"],
  [/^(ENOTFOUND|EAI_AGAIN)$/, "unknown host"],
  [/TIMEDOUT$|_TIMEOUT$/, "timed out"],
  [/^E(HOST|NET)(UNREACH|DOWN)$/, "host unreachable"],
  [/CERT|^UNABLE_TO_|^ERR_(SSL|TLS)_|^EPROTO$/, "TLS failed"],
];

const describeCode = (code: string): string => {
  const meaning = meanings.find(([pattern]) => pattern.test(code));
  return meaning === undefined ? code : `${meaning[1]} (${code})`;
};

/**
 * Classifies an error that the AI SDK or `fetch` threw or streamed. The response is read from the `statusCode`,
 * `responseHeaders` and `responseBody` of the error or of its causes.
 */
export const classifyError = (error: unknown): ModelFailure => {
  if (error instanceof ModelFailure) return error;
  // The stream ended without a finish reason.
  if (isRecord(error) && error["name"] === "AI_InvalidResponseDataError") return cutOff;
  const facts: Array<string> = [];
  const names: Array<string> = [];
  /** Strings from the error, which may quote the chat. They are searched, but never logged. */
  let texts = typeof error === "string" ? error : "";
  let status: number | undefined;
  let retryAfter: unknown;
  for (let e = error, depth = 0; isRecord(e) && depth < 4; e = e["cause"], depth++) {
    const { code, message, name, responseBody, responseHeaders, statusCode } = e;
    if (e instanceof Error && /^\w{1,60}$/.test(`${name}`)) names.push(`${name}`);
    // When a stream breaks off, its error has the status that the stream began with.
    if (typeof statusCode === "number" && statusCode >= 300) {
      facts.push(`HTTP ${(status ??= statusCode)}`);
    }
    if (typeof code === "string" && /^[A-Z][A-Z0-9_]{2,39}$/.test(code)) {
      facts.push(describeCode(code));
    }
    if (isRecord(responseHeaders)) retryAfter ??= responseHeaders["retry-after"];
    const body = `${responseBody ?? ""}`.slice(0, 4000);
    // Providers' codes, such as `insufficient_quota`, are identifiers that never quote the chat.
    for (const [, id] of body.matchAll(/"code"\s*:\s*"([a-z]{2,20}(?:_[a-z]{2,20}){1,4})"/g)) {
      facts.push(id!);
    }
    // When `fetch` rejects a URL, the error has no code.
    if (message === "bad port" || message === "unknown scheme") facts.push(message);
    if (/^\s*<(!doctype|html)/i.test(body)) facts.push("HTML page");
    texts += [message, code, e["type"], body].join("\n").slice(0, 8000);
  }
  return new ModelFailure({
    reason: reasonOf(error, status, texts),
    detail: [...new Set(facts.length > 0 ? facts : names)].join(", ") || "unknown error",
    retryAfterMillis: millisOf(retryAfter),
  });
};

const reasonOf = (error: unknown, status: number | undefined, texts: string): FailureReason => {
  if (status === 408) return "timeout";
  if (status === 413) return "context_length";
  if (status === 429) return "rate_limit";
  const isTooLong = contextLength.test(texts);
  if (status === 400 || status === 422) return isTooLong ? "context_length" : "bad_request";
  if (status !== undefined && status >= 300) return status < 500 ? "client_error" : "server_error";
  // An error inside a streamed response has no status of its own.
  if (isTooLong) return "context_length";
  return error instanceof Error ? "network" : "server_error";
};

const contextLength =
  /context_length_exceeded|context[ _](length|window|size)|maximum (context|prompt) length|(prompt|input|request) is too (long|large)|too many (input )?tokens|reduce the length/i;

/** A `Retry-After` is a number of seconds or a date. */
const millisOf = (retryAfter: unknown): number | undefined => {
  const seconds = Number(retryAfter);
  const millis = Number.isNaN(seconds) ? Date.parse(`${retryAfter}`) - Date.now() : seconds * 1000;
  return millis > 0 ? millis : undefined;
};

const isRecord = (u: unknown): u is Record<string, unknown> => typeof u === "object" && u !== null;

/**
 * Retries after 200 ms, 400 ms and so on, with jitter, each delay added to the failure's `Retry-After`. Stops after
 * `retries` retries, at a failure that is not transient, or when the next call would begin after the ask's deadline.
 */
export const retrySchedule = (retries = 4) =>
  Schedule.exponential("200 millis").pipe(
    Schedule.setInputType<ModelFailure>(),
    Schedule.jittered,
    Schedule.upTo({ times: retries }),
    Schedule.addDelay(({ input }) => Effect.succeed(Duration.millis(input.retryAfterMillis ?? 0))),
    Schedule.while(({ duration, input, now }) =>
      Effect.map(
        AskDeadline,
        (deadline) => input.scope === "transient" && now + Duration.toMillis(duration) < deadline,
      ),
    ),
  );
