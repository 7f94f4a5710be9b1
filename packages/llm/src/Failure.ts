/**
 * What went wrong with a call of a language model, told in names, statuses and codes only: an error
 * of a provider may quote the chat, the instructions or the API key in its message, body and values.
 */
import { AnswerUnavailable } from "@parley/core";
import { Data } from "effect";

/** Closed, so that it can be a metric's attribute. */
export type FailureReason =
  | "network"
  /** The provider was silent for too long, or said so itself. */
  | "timeout"
  | "rate_limit"
  | "server_error"
  | "client_error"
  | "empty"
  /** The answer stopped before the model had finished. */
  | "cut_off"
  | "content_filter"
  /** The model finished for a reason that makes no answer. */
  | "abnormal_end"
  /** Not called: it failed too often just before. */
  | "circuit_open"
  /** Not called: it told this question to wait. */
  | "asked_to_wait";

export class ModelFailure extends Data.TaggedError("ModelFailure")<{
  readonly reason: FailureReason;
  /** For logs. */
  readonly detail: string;
  /** Whether the same call at the same provider may soon succeed. */
  readonly retry?: boolean;
  /** How long the provider is not to be called. */
  readonly retryAfterMillis?: number;
  /** Whether it speaks against the provider's health, and not against this one question. */
  readonly ill: boolean;
  /** Whether the prompt did not fit the model's window. */
  readonly tooLong?: boolean;
}> {}

const passing: ReadonlySet<FailureReason> = new Set<FailureReason>([
  "network",
  "timeout",
  "rate_limit",
  "server_error",
  "empty",
  "cut_off",
  "asked_to_wait",
]);

/** What comes of a provider that is not called, for it told this question to wait so long. */
export const askedToWait = (provider: string, retryAfterMillis: number): ModelFailure =>
  new ModelFailure({
    reason: "asked_to_wait",
    detail: `${provider} asked not to be called for another ${Math.ceil(retryAfterMillis)} ms`,
    retryAfterMillis,
    ill: false,
  });

/** What comes of the failures of all providers that were tried, at least one. */
export const unavailable = (failures: ReadonlyArray<ModelFailure>): AnswerUnavailable => {
  const waits = failures.flatMap(({ reason, retryAfterMillis = 0 }) =>
    passing.has(reason) ? [retryAfterMillis] : [],
  );
  return new AnswerUnavailable({
    reason: failures.map(({ detail }) => detail).join("; "),
    passing: waits.length > 0,
    ...(waits.length > 0 && { retryAfterMillis: Math.min(...waits) }),
  });
};

/** The failure that an error thrown or told by the AI SDK amounts to. */
export const failureOf = (error: unknown): ModelFailure => {
  const facts: Array<string> = [];
  let status: number | undefined;
  let said = typeof error === "string" ? error : "";
  let retryAfterMillis: number | undefined;
  let local = false;
  for (let e = error, depth = 0; isRecord(e) && depth < 4; e = e["cause"], depth++) {
    if (e instanceof Error && /^\w{1,60}$/.test(e.name)) {
      facts.push(e.name);
      local ||= localError.test(e.name);
    }
    if (typeof e["statusCode"] === "number") {
      status ??= e["statusCode"];
      facts.push(`HTTP ${e["statusCode"]}`);
    }
    if (typeof e["code"] === "string" && /^[A-Z][A-Z0-9_]{2,39}$/.test(e["code"])) {
      facts.push(e["code"]);
    }
    retryAfterMillis ??= retryAfterOf(e["responseHeaders"]);
    for (const key of ["message", "code", "type", "responseBody"]) {
      if (typeof e[key] === "string") said += `\n${e[key].slice(0, 4000)}`;
    }
  }
  const detail = `the language model failed: ${facts.join(", ") || "an error of unknown kind"}`;
  const wait = retryAfterMillis === undefined ? {} : { retryAfterMillis };
  const ofQuestion = status === undefined || [400, 422].includes(status);
  if (status === 413 || (ofQuestion && tooLong.test(said))) {
    return new ModelFailure({ reason: "client_error", detail, ill: false, tooLong: true });
  }
  if (status === 429) {
    const retry = !outOfQuota.test(said);
    return new ModelFailure({ reason: "rate_limit", detail, retry, ill: true, ...wait });
  }
  if (status === 408) {
    return new ModelFailure({ reason: "timeout", detail, retry: true, ill: true, ...wait });
  }
  if (status !== undefined && status >= 500) {
    return new ModelFailure({ reason: "server_error", detail, retry: true, ill: true, ...wait });
  }
  if (status !== undefined && status >= 400) {
    // What is wrong with one question is no illness; a refused key or an unknown model is.
    return new ModelFailure({ reason: "client_error", detail, ill: !ofQuestion });
  }
  if (local) return new ModelFailure({ reason: "client_error", detail, ill: true });
  // An error within a response has no status, and may be a bare string.
  const reason = error instanceof Error ? "network" : "server_error";
  return new ModelFailure({ reason, detail, retry: true, ill: true });
};

/** Errors of the AI SDK about how it is called. */
const localError = /^AI_(Invalid(Argument|Prompt|MessageRole)|Load|NoSuch|Unsupported)/;

const tooLong =
  /context_length_exceeded|context[ _](length|window|size)|maximum (context|prompt) length|(prompt|input|request) is too (long|large)|too many (input )?tokens|reduce the length/i;

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
