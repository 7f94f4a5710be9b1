/**
 * Failed calls, and when a call is retried. A failure contains only names, statuses and codes: the message, body and
 * values of a provider's error may quote the chat, the instructions or the API key.
 */
import { AskDeadline } from "@parley/core/ports";
import { Data, Duration, Effect, Schedule } from "effect";
import { isRecord, parseJson } from "./Json.ts";

/**
 * `transient` means that the same call may soon succeed and is retried. `provider` failures of several keys in a row
 * pause the model for everybody: they say that the provider fails, whereas a question alone can cause the others. Calls
 * that fail with `free` before the answer's first delta cost nothing. A `rejection` may mean that the prompt is too long.
 */
const scopeOf = {
  network: ["transient", "provider", "free"],
  /** The provider was silent for too long, or reported a timeout. */
  timeout: ["transient", "provider"],
  rate_limit: ["transient", "provider", "free"],
  server_error: ["transient", "provider", "free"],
  /** The account has used up its quota or its money. */
  quota: ["provider", "free"],
  /** The answer stopped before the model had finished. */
  cut_off: ["transient"],
  empty: ["transient"],
  /** The model used up its output tokens on reasoning. */
  reasoning_only: [],
  bad_request: ["free", "rejection"],
  /** For example a redirect, an HTML page, a rejected key or an unknown model. */
  client_error: ["free"],
  context_length: ["free", "rejection"],
  content_filter: [],
  /** The call ended in some other way without a usable answer. */
  abnormal_end: [],
  /** The provider was not called, because its circuit is open, or half-open while another call tries the provider. */
  circuit_open: ["free"],
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
  is(scope: "transient" | "provider" | "free" | "rejection"): boolean {
    return (scopeOf[this.reason] as ReadonlyArray<string>).includes(scope);
  }
}

export const makeFailure = (reason: FailureReason, detail: string): ModelFailure =>
  new ModelFailure({ reason, detail });

export const cutOff = makeFailure("cut_off", "the answer was cut off");

/** An error that a response with status 200 contains: in its stream, or instead of one. */
export class ErrorInside {
  readonly value: unknown;
  readonly isStream: boolean;
  constructor(value: unknown, isStream: boolean) {
    this.value = value;
    this.isStream = isStream;
  }
}

/** Readable descriptions of Node's network error codes. */
const meanings: ReadonlyArray<readonly [RegExp, string]> = [
  [/^ECONNREFUSED$/, "connection refused"],
  [/^(ECONNRESET|EPIPE|UND_ERR_SOCKET)$/, "connection closed"],
  [/^(ENOTFOUND|EAI_AGAIN)$/, "unknown host"],
  [/TIMEDOUT$|_TIMEOUT$/, "timed out"],
  [/^E(HOST|NET)(UNREACH|DOWN)$/, "host unreachable"],
  [
    /SELF_SIGNED|^UNABLE_TO_|UNTRUSTED|INVALID_CA/,
    "TLS failed: NODE_EXTRA_CA_CERTS must name a file with the certificate of the authority",
  ],
  [/CERT|^ERR_(SSL|TLS)_|^EPROTO$/, "TLS failed"],
];

const describeCode = (code: string): string => {
  const meaning = meanings.find(([pattern]) => pattern.test(code));
  return meaning === undefined ? code : `${meaning[1]} (${code})`;
};

/**
 * Classifies an error that the AI SDK or `fetch` threw, or that a response with status 200 contains. The response is
 * read from the `statusCode`, `responseHeaders` and `responseBody` of the error or of its causes.
 *
 * @param isFromChat tells whether the chat contains a string, which must then not appear in a log
 */
export const classifyError = (
  error: unknown,
  isFromChat: (text: string) => boolean = () => false,
): ModelFailure => {
  if (error instanceof ModelFailure) return error;
  const facts: Array<string> = [];
  const names: Array<string> = [];
  const identifiers: Array<string> = [];
  let status: number | undefined;
  let retryAfter: unknown;
  const addBody = (body: unknown, httpStatus?: unknown) => {
    for (const [label, value] of identifiersIn(body)) {
      if (/^[45]\d\d$/.test(value)) status ??= Number(value);
      identifiers.push(value);
      if (value !== `${httpStatus}` && !isFromChat(value)) facts.push(`${label}${value}`);
    }
  };
  if (!(error instanceof Error)) addBody(error instanceof ErrorInside ? error.value : error);
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
    // When `fetch` rejects a URL, the error has no code.
    if (message === "bad port" || message === "unknown scheme") facts.push(message);
    if (/^\s*<(!doctype|html)/i.test(`${responseBody ?? ""}`)) facts.push("HTML page");
    addBody(responseBody, statusCode);
    if (!isRecord(responseHeaders)) continue;
    retryAfter ??= responseHeaders["retry-after"];
    const [, id = ""] =
      Object.entries(responseHeaders).find(([name]) => /request-?id$|^cf-ray$/i.test(name)) ?? [];
    if (/^[\w.:-]{4,80}$/.test(`${id}`)) facts.push(`request ${id}`);
  }
  return new ModelFailure({
    reason: reasonOf(error, status, identifiers.join(" ").toLowerCase()),
    detail: [...new Set(facts.length > 0 ? facts : names)].join(", ") || "unknown error",
    retryAfterMillis: millisOf(retryAfter),
  });
};

/** Returns the values of an error's fields that are identifiers, without spaces, each with a label for the log. */
export const identifiersIn = (body: unknown): ReadonlyArray<readonly [string, string]> => {
  const details: Array<readonly [string, string]> = [];
  const visit = (value: unknown, key: string, depth: number): void => {
    if (isRecord(value) && key !== "loc") {
      if (depth < 6) for (const key in value) visit(value[key], key, depth + 1);
      return;
    }
    const text = Array.isArray(value) ? value.join(".") : `${value}`;
    const isIdentifier =
      /^(?!(null|none|error|true|false|undefined)$)([a-z_][\w.:/[\]-]{1,79}|\d{3,6})$/i;
    if (!isIdentifier.test(text)) return;
    if (/^(error|code|type|status|status_code|reason)$/.test(key)) details.push(["", text]);
    if (/^(param|loc)$/.test(key)) details.push([paramLabel, text]);
    if (key === "request_id") details.push(["request ", text]);
  };
  visit(typeof body === "string" ? (parseJson(body) ?? body) : body, "error", 0);
  return details;
};
export const paramLabel = "param ";

/** Classifies by status, and by what the identifiers name only where the status leaves it open. */
const reasonOf = (
  error: unknown,
  status: number | undefined,
  identifiers: string,
): FailureReason => {
  if (status === 402 || quotaCodes.test(identifiers)) return "quota";
  if (status === 408) return "timeout";
  if (status === 413 || /context_?(length|window|size)/.test(identifiers)) return "context_length";
  if (status === 429) return "rate_limit";
  if (/content_?(filter|policy)|safety/.test(identifiers)) return "content_filter";
  if (status === 400 || status === 422) return "bad_request";
  if (status !== undefined && status >= 300) return status < 500 ? "client_error" : "server_error";
  if (/rate_?limit|throttl/.test(identifiers)) return "rate_limit";
  if (error instanceof Error) return "network";
  // An error inside a stream breaks off an answer that the model had begun.
  if (error instanceof ErrorInside && !error.isStream) return "abnormal_end";
  return /invalid|not_found|unsupported|auth|permission/.test(identifiers)
    ? "bad_request"
    : "server_error";
};

/** Codes of accounts without quota or money; 1113 is Zhipu's. Throttling by a quota per minute is none. */
const quotaCodes =
  /(^| )(?!\S*(throttl|rate_?limit))\S*(quota|billing|balance|arrear|overdue|credit|payment)|(^| )1113( |$)/;

/** A `Retry-After` is a number of seconds or a date. */
const millisOf = (retryAfter: unknown): number | undefined => {
  const seconds = Number(retryAfter);
  const millis = Number.isNaN(seconds) ? Date.parse(`${retryAfter}`) - Date.now() : seconds * 1000;
  return millis > 0 ? millis : undefined;
};

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
        (deadline) => input.is("transient") && now + Duration.toMillis(duration) < deadline,
      ),
    ),
  );
