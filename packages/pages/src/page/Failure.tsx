/**
 * Shows a failure as a sentence and an action. On request, it also shows the contract's message and code, and the id
 * under which the operator finds the failure in the log.
 */
import type { ComponentChildren } from "preact";
import { useMemo } from "preact/hooks";
import { ConnectionError, ResponseError, ValidationError } from "@parley/client";
import { toLocale, translate, type Phrase } from "./words.ts";

/** Actions that can help besides trying again. */
export const actions: Record<string, () => ComponentChildren> = {
  key: () => <a href="#key">{translate("Enter another key")}</a>,
  chat: () => <a href="#">{translate("New chat")}</a>,
};

type Action = "again" | "key" | "chat" | null;

/**
 * By message of the contract, a sentence and the action that can help; `null` if no action on this page can. All other
 * messages share the sentence `other`. When the server rejects the key, the playground shows the form for another key
 * anyway.
 */
const sentences: Readonly<Record<string, readonly [Phrase, Action]>> = {
  API_KEY_NOT_PRESENT: ["The server needs an API key. Enter one.", "again"],
  API_KEY_NOT_VALID: ["The key is not valid, or no longer valid. Enter another one.", "again"],
  SCOPE_NOT_GRANTED: ["This key does not allow that. Enter one that does.", "key"],
  USER_REF_NOT_GRANTED: ["This key cannot be used for this user.", "key"],
  RATE_EXCEEDED: ["Too many requests with this key.", "again"],
  BUDGET_SPENT: ["This key's daily budget is used up.", null],
  CHAT_DOES_NOT_EXISTS: ["This chat does not exist, or no longer exists.", "chat"],
  ANSWER_UNAVAILABLE: ["Could not answer. Nothing was stored.", "again"],
  STORAGE_UNAVAILABLE: ["The server cannot use its database at the moment.", "again"],
  SERVICE_OVERLOADED: ["The server is busy.", "again"],
  INTERNAL_ERROR: ["An unexpected error occurred on the server.", "again"],
  CREATE_CHAT_DTO_NAME_TOO_LONG: ["The name is longer than 255 characters.", null],
  CHANGE_CHAT_DTO_NAME_TOO_LONG: ["The name is longer than 255 characters.", null],
  CREATE_CHAT_DTO_USER_REF_TOO_LONG: ["The user reference is longer than 60 characters.", null],
  INVALID_PATH: [
    "The server does not support this request. It may be running a different version.",
    null,
  ],
};

const explain = (error: unknown): readonly [sentence: string, action: Action] => {
  if (error instanceof ConnectionError) {
    return [
      translate(
        navigator.onLine === false ? "This device is offline." : "The server is not responding.",
      ),
      "again",
    ];
  }
  if (!(error instanceof ResponseError)) return [String(error), "again"];
  const { message, retryAfterSeconds: wait, status } = error;
  // Only a response without a code of Parley's is somebody else's.
  const other =
    error.code === undefined
      ? "Not the server, but something in front of it, answered: HTTP {}."
      : "The server refused the request: HTTP {}.";
  const [text, action] = sentences[message] ?? ([other, status >= 500 ? "again" : null] as const);
  const sentence = translate(text, status);
  return [wait ? `${sentence} ${toAdvice(wait)}` : sentence, action];
};

/** Says when to try again: in some seconds, at a time of today, or on which day. */
const toAdvice = (seconds: number): string => {
  const format = new Intl.RelativeTimeFormat(toLocale(), { numeric: "auto" });
  if (seconds < 90) return translate("Try again {}.", format.format(seconds, "second"));
  // A minute that has only begun is too early.
  const at = new Date(Math.ceil((Date.now() + 1000 * seconds) / 60_000) * 60_000);
  const time = at.toLocaleTimeString(toLocale(), { timeStyle: "short" });
  const days = Math.round((at.setHours(0, 0, 0, 0) - new Date().setHours(0, 0, 0, 0)) / 864e5);
  return days === 0
    ? translate("Try again at {}.", time)
    : translate("Try again {}.", format.format(days, "day"));
};

interface FailureProps {
  /** The error, or a sentence about it; `undefined` if there is no failure. */
  readonly error: unknown;
  readonly retry?: () => void;
  /** Additional actions. */
  readonly children?: ComponentChildren;
}

/** An alert that explains why a request failed, with the action that can help. */
export const Failure = ({ children, error, retry }: FailureProps) => {
  // A later rendering must not name a later time.
  const [sentence, action] = useMemo(() => explain(error), [error]);
  if (error === undefined) return null;
  return (
    <div class={typeof error === "string" ? "stack" : "failure stack"} role="alert">
      <p>{sentence}</p>
      <div class="actions">
        {action &&
          (actions[action]?.() ??
            (retry && <button onClick={retry}>{translate("Try again")}</button>))}
        {children}
      </div>
      <Reason error={error} />
    </div>
  );
};

/** What an operator needs to know about a failure. */
const Reason = ({ error }: { readonly error: unknown }) => {
  if (!(error instanceof ResponseError)) return null;
  const { code, message, requestId, status } = error;
  const problems =
    error instanceof ValidationError ? error.errors : [{ code, message, path: null }];
  return (
    <details class="quiet">
      <summary>{translate("Details")}</summary>
      {problems.map(({ code, message, path }) => (
        <p>
          {code && `Status ${status}, code ${code}, `}
          <code>{message}</code> {path && `at ${JSON.stringify(path)}`}
        </p>
      ))}
      {requestId && (
        <p>
          x-request-id <code>{requestId}</code>
        </p>
      )}
    </details>
  );
};
