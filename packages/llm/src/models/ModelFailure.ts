/**
 * Failures of calls, described by names, statuses and codes only: an error of a provider may quote the chat, the
 * instructions or the API key in its message, body and values.
 */
import { Data } from "effect";

/** Whether the same call may soon succeed: then the failure also speaks against the provider, and not this question. */
const passes = {
  network: true,
  /** The provider was silent for too long, or said so itself. */
  timeout: true,
  rate_limit: true,
  server_error: true,
  /** The answer stopped before the model had finished. */
  cut_off: true,
  empty: true,
  /** The model spent its tokens on reasoning. */
  reasoning_only: false,
  client_error: false,
  /** The prompt did not fit the model's window. */
  context_length: false,
  /** The provider refused the bound of the answer's length. */
  output_limit: false,
  /** A web site is at the address, and no model. */
  html_page: false,
  content_filter: false,
  /** The model finished for a reason that makes no answer. */
  abnormal_end: false,
  /** Not called: it failed too often just before. */
  circuit_open: false,
};

/** Closed, so that it can be a metric's attribute. */
export type FailureReason = keyof typeof passes;

interface Judgement {
  readonly retryable: boolean;
  /** How long the provider asks not to be called. */
  readonly retryAfterMillis?: number | undefined;
  readonly countsAgainstProvider: boolean;
}

export class ModelFailure extends Data.TaggedError("ModelFailure")<
  Judgement & {
    readonly reason: FailureReason;
    /** For logs. */
    readonly detail: string;
  }
> {}

export const failure = (
  reason: FailureReason,
  detail: string,
  more: Partial<Judgement> = {},
): ModelFailure =>
  new ModelFailure({
    reason,
    detail,
    retryable: passes[reason],
    countsAgainstProvider: passes[reason],
    ...more,
  });

/** Classifies an error of the AI SDK. */
export const failureOf = (error: unknown): ModelFailure => {
  const facts: Array<string> = [];
  /** The texts of the error, which may quote anything. */
  let said = typeof error === "string" ? error : "";
  let status: number | undefined;
  let headers: unknown;
  for (let e = error, depth = 0; isRecord(e) && depth < 4; e = e["cause"], depth++) {
    const { code, name, responseHeaders, statusCode } = e;
    if (e instanceof Error && /^\w{1,60}$/.test(`${name}`)) facts.push(`${name}`);
    if (typeof statusCode === "number") facts.push(`HTTP ${(status ??= statusCode)}`);
    if (typeof code === "string" && /^[A-Z][A-Z0-9_]{2,39}$/.test(code)) facts.push(code);
    headers ??= responseHeaders;
    for (const key of ["message", "code", "type", "responseBody"]) {
      if (typeof e[key] === "string") said += `\n${e[key].slice(0, 4000)}`;
    }
  }
  const detail = `the language model failed: ${facts.join(", ") || "an error of unknown kind"}`;
  if (status !== undefined && (status >= 400 || isHtml(headers))) {
    return httpFailure(status, headers, said, detail);
  }
  // An error within a response has no status of its own.
  if (contextLength.test(said)) return failure("context_length", detail);
  if (facts.some((fact) => localError.test(fact))) {
    return failure("client_error", detail, { countsAgainstProvider: true });
  }
  return failure(error instanceof Error ? "network" : "server_error", detail);
};

/** Classifies a response that is no answer. */
export const httpFailure = (
  status: number,
  headers: unknown,
  said: string,
  detail: string,
): ModelFailure => {
  const wait = { retryAfterMillis: retryAfterOf(headers) };
  if (status === 408) return failure("timeout", detail, wait);
  if (status === 429) {
    return failure("rate_limit", detail, { ...wait, retryable: !outOfQuota.test(said) });
  }
  if (status >= 500) return failure("server_error", detail, wait);
  if (isHtml(headers)) {
    const page = `the address answers with an HTML page (HTTP ${status}), not with a model's API: it often ends with /v1`;
    return failure("html_page", page, { countsAgainstProvider: true });
  }
  const ofQuestion = status === 400 || status === 422;
  if (status === 413 || (ofQuestion && contextLength.test(said))) {
    return failure("context_length", detail);
  }
  if (ofQuestion && outputLimit.test(said)) return failure("output_limit", detail);
  // A refused key or an unknown model speaks against the provider; a fault of one question does not.
  return failure("client_error", detail, { countsAgainstProvider: !ofQuestion });
};

const isHtml = (headers: unknown): boolean =>
  isRecord(headers) && /^text\/html\b/i.test(String(headers["content-type"]));

/** Errors of the AI SDK about how it is called. */
const localError = /^AI_(Invalid(Argument|Prompt|MessageRole)|Load|NoSuch|Unsupported)/;

const contextLength =
  /context_length_exceeded|context[ _](length|window|size)|maximum (context|prompt) length|(prompt|input|request) is too (long|large)|too many (input )?tokens|reduce the length/i;

/** Not a name that the provider does not know: with that it refuses every call. */
const outputLimit = /^(?![^]*(unsupported|not supported|unknown|unrecognized))[^]*max\w*_tokens/i;

const outOfQuota = /insufficient_quota|billing/i;

const retryAfterOf = (headers: unknown): number | undefined => {
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
