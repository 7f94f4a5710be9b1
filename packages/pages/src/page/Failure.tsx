/**
 * Failures as a sentence and an act. The contract's message and code, and the id by which the operator finds the
 * failure in the log, unfold.
 */
import type { ComponentChildren } from "preact";
import { ConnectionError, ResponseError, ValidationError } from "@parley/client";

/** What can help: the same again, another key, another chat, or nothing here. */
type Act = "retry" | "key" | "chat" | null;

const sentences: Readonly<Record<string, readonly [sentence: string, act: Act]>> = {
  API_KEY_NOT_PRESENT: ["The server wants a key. Enter one.", "key"],
  API_KEY_NOT_VALID: ["The key is not valid, or no longer. Enter another one.", "key"],
  SCOPE_NOT_GRANTED: ["The key may not do this. Enter one that may.", "key"],
  USER_REF_NOT_GRANTED: ["The key may not act for this user.", "key"],
  RATE_EXCEEDED: ["That was too much at once for this key.", "retry"],
  BUDGET_SPENT: ["The key has spent its budget for today.", null],
  CHAT_DOES_NOT_EXISTS: ["This chat does not exist, or no longer.", "chat"],
  ANSWER_UNAVAILABLE: ["The answer failed. Nothing was stored.", "retry"],
  STORAGE_UNAVAILABLE: ["The server cannot reach its database at the moment.", "retry"],
  SERVICE_OVERLOADED: ["The server is busy.", "retry"],
  INTERNAL_ERROR: ["The server met an error of its own. Its log names it.", "retry"],
  ASK_DTO_QUERY_TOO_LONG: ["The question is too long.", null],
  ASK_DTO_QUERY_BLANK: ["The question is empty.", null],
  CREATE_CHAT_DTO_NAME_TOO_LONG: ["The name is longer than 255 characters.", null],
  CREATE_CHAT_DTO_USER_REF_TOO_LONG: ["The user reference is longer than 60 characters.", null],
  INVALID_PATH: ["The server does not know this request. Its version may be another.", null],
};

export const explain = (error: unknown): readonly [sentence: string, act: Act] => {
  if (error instanceof ConnectionError) {
    return ["The server does not answer. The page tries again until it does.", "retry"];
  }
  if (!(error instanceof ResponseError)) return [String(error), "retry"];
  const { message, retryAfterSeconds, status } = error;
  const [sentence, act] =
    sentences[message] ??
    (status >= 500
      ? [`The server, or a proxy before it, failed with HTTP ${status}.`, "retry"]
      : [`The server refused the request with HTTP ${status}.`, null]);
  const wait = retryAfterSeconds && ` Try again in ${toTime(retryAfterSeconds)}.`;
  return [sentence + (wait ?? ""), act];
};

const toTime = (seconds: number): string => {
  const [amount, unit] =
    seconds < 90
      ? [seconds, "second"]
      : seconds < 5400
        ? [Math.round(seconds / 60), "minute"]
        : [Math.round(seconds / 3600), "hour"];
  return `${amount} ${unit}${amount === 1 ? "" : "s"}`;
};

interface FailureProps {
  /** `undefined`: there is none. */
  readonly error: unknown;
  readonly retry?: (() => void) | undefined;
  readonly forgetKey?: (() => void) | undefined;
  /** Other acts. */
  readonly children?: ComponentChildren;
}

/** An alert that explains why a request failed, with the act that can help. */
export const Failure = ({ children, error, forgetKey, retry }: FailureProps) => {
  if (error === undefined) return null;
  const [sentence, act] = explain(error);
  return (
    <div class="failure stack" role="alert">
      <p>{sentence}</p>
      <div class="acts">
        {act === "retry" && retry && <button onClick={retry}>Try again</button>}
        {act === "key" && forgetKey && <button onClick={forgetKey}>Enter another key</button>}
        {act === "chat" && <a href="#">New chat</a>}
        {children}
      </div>
      <Reason error={error} />
    </div>
  );
};

/** What an operator asks for. */
export const Reason = ({ error }: { readonly error: unknown }) => {
  if (!(error instanceof ResponseError)) return null;
  const { code, message, requestId, status } = error;
  const problems =
    error instanceof ValidationError ? error.errors : [{ code, message, path: null }];
  return (
    <details class="quiet">
      <summary>Details</summary>
      {problems.map(({ code, message, path }) => (
        <p>
          <code>{message}</code>, status {status}
          {code && [", code ", <code>{code}</code>]}
          {path && [" at ", <code>{JSON.stringify(path)}</code>]}
        </p>
      ))}
      {requestId && (
        <p>
          Request id <code>{requestId}</code>
        </p>
      )}
    </details>
  );
};
