/**
 * A single attempt at a request, its errors, and when to retry it. If the caller's `AbortSignal` is aborted, the call
 * rejects with the signal's reason rather than an error from this file.
 */
import type { Attempt, ClientOptions } from "./Interface.ts";

/**
 * An error response. `message` is the one in the response body, such as `CHAT_DOES_NOT_EXISTS`, or else the status,
 * such as `HTTP 502`.
 */
export class ResponseError extends Error {
  override readonly name: string = "ResponseError";
  readonly status: number;
  /** The error code; `undefined` if the failure is not the server's own, such as a proxy's 502. */
  readonly code: number | undefined;
  /** Identifies the failure in the server's log. */
  readonly requestId: string | undefined;
  /** How many seconds the server asks the client to wait before a retry. */
  readonly retryAfterSeconds: number | undefined;

  /** `body` is the parsed response body, or `undefined` if it is not JSON. */
  constructor(status: number, body: any, requestId?: string, retryAfter?: string | null) {
    super(body?.message ?? `HTTP ${status}`);
    this.status = status;
    this.code = body?.code;
    this.requestId = requestId;
    // Some proxies send a date.
    const seconds = Number(retryAfter) || Math.ceil((Date.parse(retryAfter!) - Date.now()) / 1000);
    this.retryAfterSeconds = seconds > 0 ? seconds : undefined;
  }
}

/** The server rejected values in the request (status 422). `code` and `message` are those of the first error. */
export class ValidationError extends ResponseError {
  override readonly name = "ValidationError";
  /** An error for each rejected value. The path `[]` stands for the body itself. */
  readonly errors: ReadonlyArray<{ code: number; message: string; path: ReadonlyArray<string> }>;

  constructor(errors: ValidationError["errors"], requestId?: string) {
    super(422, errors[0], requestId);
    this.errors = errors;
  }
}

/**
 * No response from a Parley server arrived, a response broke off, or the server was silent for longer than the timeout.
 * The message or `cause` says which.
 */
export class ConnectionError extends Error {
  override readonly name = "ConnectionError";
}

/** A request. `timeoutMillis` is how long the server may be silent. */
export interface ClientRequest extends Pick<Attempt, "method" | "url" | "headers" | "body"> {
  readonly timeoutMillis: number;
  readonly signal?: AbortSignal | undefined;
}

/** Returns the error for a failed request. `body` is an error from the server or, if a proxy responded, anything. */
export const toResponseError = (
  status: number,
  body: any,
  requestId?: string,
  retryAfter?: string | null,
): ResponseError =>
  Array.isArray(body?.errors)
    ? new ValidationError(body.errors, requestId)
    : new ResponseError(status, body, requestId, retryAfter);

/**
 * Some frameworks, such as Next.js, would otherwise repeat a response from a cache. Older versions of Cloudflare Workers
 * throw an error if they see the option.
 */
const hasCacheOption = "cache" in (globalThis.Request?.prototype ?? {});

/** Sends a request and yields the text of a successful response as it arrives. Breaking out of the loop disconnects. */
export async function* send(
  { apiKey, fetch = globalThis.fetch, onAttempt }: ClientOptions,
  { signal, timeoutMillis, ...request }: ClientRequest,
) {
  throwIfAborted(signal);
  const headersWithKey = {
    ...request.headers,
    ...(apiKey !== undefined && { "x-api-key": apiKey }),
  };
  // Built outside the `try` block, because invalid headers are not a broken connection. A plain object, because the
  // caller's own `fetch` may spread it.
  const headers = Object.fromEntries(new Headers(headersWithKey));
  const controller = new AbortController();
  const silence = new Error(`The server was silent for ${timeoutMillis} ms`);
  /** Limits each wait separately, because a slow reader does not mean a silent server. */
  const inTime = <A>(promise: Promise<A>): Promise<A> => {
    const timer = setTimeout(() => controller.abort(silence), timeoutMillis);
    return promise.finally(() => clearTimeout(timer));
  };
  const beganAt = Date.now();
  let outcome: Pick<Attempt, "status" | "requestId"> = {};
  const report = (error?: unknown) =>
    onAttempt?.({
      ...request,
      ...outcome,
      beganAt,
      durationMillis: Date.now() - beganAt,
      error,
    });
  let isOpen = false;
  try {
    const response = await inTime(
      fetch(request.url, {
        method: request.method,
        body: request.body ?? null,
        headers,
        signal: anySignal(controller.signal, signal),
        // A redirect could hand the key to another server. Cloudflare Workers do not support the mode `error`.
        redirect: "manual",
        ...(hasCacheOption && request.method === "GET" && { cache: "no-store" }),
      }),
    );
    const { body, ok, status } = response;
    const requestId = response.headers.get("x-request-id") ?? undefined;
    outcome = { status, requestId };
    if (!ok) {
      // In browsers, the status of a redirect is 0.
      if (status < 400) throw new Error("The server redirected the request");
      const failure = await inTime(response.json()).catch(() => undefined);
      throw toResponseError(status, failure, requestId, response.headers.get("retry-after"));
    }
    report();
    isOpen = true;
    if (!body) {
      // Some implementations of `fetch`, such as that of React Native, do not stream.
      yield { requestId, text: await inTime(response.text()) };
      return throwIfAborted(signal);
    }
    const reader = body.getReader();
    const decoder = new TextDecoder();
    for (;;) {
      const { done, value } = await inTime(reader.read());
      if (done) {
        // A `fetch` that calls a handler in this process may end the body when the request is aborted.
        throwIfAborted(controller.signal);
        return throwIfAborted(signal);
      }
      yield { requestId, text: decoder.decode(value, { stream: true }) };
    }
  } catch (cause) {
    const error = signal?.aborted
      ? (signal.reason ?? cause)
      : cause instanceof ResponseError
        ? cause
        : new ConnectionError("The connection failed", { cause });
    if (!isOpen) report(error);
    throw error;
  } finally {
    controller.abort();
  }
}

/** `ANSWER_UNAVAILABLE` and `ANSWER_STOPPED`. */
const finalCodes = [500002, 500005];

/**
 * Returns the delay before the next attempt. Throws the error if there must be none: the call was aborted, the request
 * was invalid (4xx without `Retry-After`), the server has already tried all its models or the ask was stopped, the
 * server asks for a wait of more than a minute, or too many attempts have failed in a row.
 */
export const retryDelayMillis = (error: unknown, failures: number, retries: number): number => {
  const isFailure = error instanceof ResponseError || error instanceof ConnectionError;
  if (!isFailure || failures >= retries) throw error;
  const { code, retryAfterSeconds = 0, status = 500 }: Partial<ResponseError> = error;
  const isFinal = status < 500 && retryAfterSeconds === 0;
  if (isFinal || finalCodes.includes(code!) || retryAfterSeconds > 60) throw error;
  const backoff = Math.min(10_000, 500 * 2 ** failures);
  return 1000 * retryAfterSeconds + backoff * (0.5 + Math.random() / 2);
};

/** Returns a signal that is aborted with the first of the signals. React Native has neither of the platform's methods. */
export const anySignal = (...signals: ReadonlyArray<AbortSignal | undefined>): AbortSignal => {
  const present = signals.filter((signal) => signal !== undefined);
  if ("any" in AbortSignal) return AbortSignal.any(present);
  const controller = new AbortController();
  for (const signal of present) {
    const abort = () => controller.abort(signal.reason);
    if (signal.aborted) abort();
    else signal.addEventListener("abort", abort, { once: true });
  }
  return controller.signal;
};

const throwIfAborted = (signal: AbortSignal | undefined): void => {
  if (signal?.aborted) throw signal.reason ?? new Error("The request was aborted");
};

/** Throws if an option is unknown, because a misspelt option would otherwise be ignored. */
export const refuseUnknown = (call: string, options: object, known: ReadonlyArray<string>) => {
  const unknown = Object.keys(options).find((name) => !known.includes(name));
  if (unknown === undefined) return;
  throw new TypeError(
    `${call}: ${unknown} is unknown; ${call} has the options ${known.join(", ")}.`,
  );
};

/** Resolves after the delay, or early if the signal is aborted; the next attempt then rejects. */
export const sleep = (millis: number, signal: AbortSignal | undefined): Promise<void> =>
  new Promise((resolve) => {
    const end = () => {
      clearTimeout(timer);
      signal?.removeEventListener("abort", end);
      resolve();
    };
    const timer = setTimeout(end, millis);
    signal?.addEventListener("abort", end);
    if (signal?.aborted) end();
  });
