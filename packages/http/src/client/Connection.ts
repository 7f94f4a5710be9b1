/**
 * One attempt of a request, and when to repeat it.
 */
import { ConnectionError, ResponseError, ValidationError } from "./ClientErrors.ts";

/** One HTTP request with its outcome: a response, or the error in its place. */
export interface Attempt {
  readonly method: "GET" | "POST";
  readonly url: string;
  /** Without the API key. */
  readonly headers: Readonly<Record<string, string>>;
  readonly body?: string | undefined;
  readonly status?: number | undefined;
  readonly requestId?: string | undefined;
  /** Why there is no successful response. */
  readonly error?: unknown;
}

/** The options of a client that concern its connections. */
export interface ConnectionOptions {
  readonly apiKey?: string | undefined;
  readonly fetch?: typeof fetch | undefined;
  readonly onAttempt?: ((attempt: Attempt) => void) | undefined;
}

/** A request; `timeoutMillis` limits the silence of the server. */
export interface ClientRequest extends Pick<Attempt, "method" | "url" | "headers" | "body"> {
  readonly timeoutMillis: number;
  readonly signal?: AbortSignal | undefined;
}

/** A successful response, which its reader closes. */
export interface Opened {
  readonly requestId: string | undefined;
  readonly text: AsyncIterable<string>;
  readonly close: () => void;
}

/** The error of a failure's body (section 7), or of any other body. */
export const toResponseError = (
  status: number,
  body: any,
  requestId?: string,
  retryAfter?: string | null,
): ResponseError =>
  Array.isArray(body?.errors)
    ? new ValidationError(body.errors, requestId)
    : new ResponseError(body?.message ?? `HTTP ${status}`, {
        status,
        code: body?.code,
        requestId,
        retryAfterSeconds: Number(retryAfter) || undefined,
      });

/** Sends a request, and resolves with its response if that is a success. */
export const open = async (
  { apiKey, fetch = globalThis.fetch, onAttempt }: ConnectionOptions,
  { signal, timeoutMillis, ...request }: ClientRequest,
): Promise<Opened> => {
  // Outside the attempt: headers that HTTP does not allow are no broken connection.
  const headers = new Headers(request.headers);
  if (apiKey !== undefined) headers.set("x-api-key", apiKey);
  const hangUp = new AbortController();
  let timer: ReturnType<typeof setTimeout> | undefined;
  const startTimer = () => {
    timer = setTimeout(
      () => hangUp.abort(new Error(`The server was silent for ${timeoutMillis} ms`)),
      timeoutMillis,
    );
  };
  const close = () => {
    clearTimeout(timer);
    hangUp.abort();
  };
  const toError = (cause: unknown): unknown =>
    signal?.aborted
      ? signal.reason
      : cause instanceof ResponseError
        ? cause
        : new ConnectionError("The connection failed", { cause });
  async function* read(body: ReadableStream<Uint8Array> | null) {
    const decoder = new TextDecoder();
    const reader = body?.getReader();
    try {
      while (reader !== undefined) {
        startTimer();
        const { done, value } = await reader.read();
        // A slow reader is no silent server.
        clearTimeout(timer);
        if (done) return;
        yield decoder.decode(value, { stream: true });
      }
    } catch (error) {
      throw toError(error);
    }
  }
  let facts: Pick<Attempt, "status" | "requestId"> = {};
  signal?.throwIfAborted();
  try {
    startTimer();
    const response = await fetch(request.url, {
      method: request.method,
      body: request.body ?? null,
      headers,
      signal: anySignal(hangUp.signal, signal),
      // A redirect could hand the key to another server.
      redirect: "error",
    });
    clearTimeout(timer);
    const { status } = response;
    const requestId = response.headers.get("x-request-id") ?? undefined;
    facts = { status, requestId };
    const opened = { requestId, text: read(response.body), close };
    if (!response.ok) {
      const failure = await readJson(opened).catch(() => undefined);
      throw toResponseError(status, failure, requestId, response.headers.get("retry-after"));
    }
    onAttempt?.({ ...request, ...facts });
    return opened;
  } catch (thrown) {
    close();
    const error = toError(thrown);
    onAttempt?.({ ...request, ...facts, error });
    throw error;
  }
};

/** Reads a response whole, and closes it. */
export const readJson = async ({ close, text }: Opened): Promise<any> => {
  try {
    let json = "";
    for await (const part of text) json += part;
    return JSON.parse(json);
  } catch (cause) {
    if (!(cause instanceof SyntaxError)) throw cause;
    throw new ConnectionError("The response is not JSON", { cause });
  } finally {
    close();
  }
};

const answerUnavailable = 500002;
const longestRetryAfterSeconds = 60;

/**
 * The delay before the next attempt. Throws the error if none may follow: the request was wrong (4xx), the server has
 * already tried all its models, it asks for a longer wait, or too many attempts have failed in a row.
 */
export const retryDelayMillis = (error: unknown, failures: number, retries: number): number => {
  const { retryAfterSeconds: retryAfter = 0 } = error instanceof ResponseError ? error : {};
  const mayRepeat =
    error instanceof ResponseError
      ? error.status >= 500 &&
        error.code !== answerUnavailable &&
        retryAfter <= longestRetryAfterSeconds
      : error instanceof ConnectionError;
  if (!mayRepeat || failures >= retries) throw error;
  const backoff = Math.min(10_000, 500 * 2 ** failures);
  return 1000 * retryAfter + backoff * (0.5 + Math.random() / 2);
};

export const anySignal = (...signals: ReadonlyArray<AbortSignal | undefined>): AbortSignal =>
  AbortSignal.any(signals.filter((signal) => signal !== undefined));

/** Ends early when the signal is aborted; the attempt that follows then rejects. */
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
