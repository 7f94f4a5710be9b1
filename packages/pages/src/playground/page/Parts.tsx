/**
 * Parts of several views.
 */
import { useEffect, useState } from "preact/hooks";
import { ConnectionError, ResponseError, ValidationError } from "@parley/client";

/** The result of `read`, which runs again when one of `inputs` changes. The last result stays until then. */
export const useRead = <A,>(
  read: (signal: AbortSignal) => Promise<A>,
  inputs: ReadonlyArray<unknown> = [],
) => {
  const [result, setResult] = useState<{ value?: A | undefined; error?: unknown }>({});
  const [attempt, setAttempt] = useState(0);
  useEffect(() => {
    const hangUp = new AbortController();
    read(hangUp.signal).then(
      (value) => setResult({ value }),
      (error: unknown) => {
        if (!hangUp.signal.aborted) setResult(({ value }) => ({ value, error }));
      },
    );
    return () => hangUp.abort();
  }, [...inputs, attempt]);
  return { ...result, retry: () => setAttempt(attempt + 1) };
};

/** Takes the focus when its element is shown. */
export const focus = (element: HTMLElement | null): void => element?.focus();

/** A time in the reader's zone; pointing at it shows the time as the server sent it. */
export const Time = ({ iso }: { readonly iso: string }) => (
  <time dateTime={iso} title={iso}>
    {new Date(iso).toLocaleString("en", { dateStyle: "medium", timeStyle: "short" })}
  </time>
);

interface FailureProps {
  /** `undefined`: there is none. */
  readonly error: unknown;
  readonly retry?: () => void;
}

/** An alert that explains why a request failed. */
export const Failure = ({ error, retry }: FailureProps) =>
  error === undefined ? null : (
    <div class="row failure" role="alert">
      <Reason error={error} />
      {retry && <button onClick={retry}>Try again</button>}
    </div>
  );

/** The contract's message and code of a failure, and the id by which the operator finds it in the log. */
export const Reason = ({ error }: { readonly error: unknown }) => {
  if (error instanceof ConnectionError) return <p>The server did not answer. Is it running?</p>;
  if (!(error instanceof ResponseError)) return <p>{String(error)}</p>;
  const { code, message, requestId, status } = error;
  const problems =
    error instanceof ValidationError ? error.errors : [{ code, message, path: null }];
  return (
    <div>
      {problems.map(({ code, message, path }) => (
        <p>
          <strong class="bad">{message}</strong> status {status}
          {code && [", code ", <code>{code}</code>]}
          {path && [" at ", <code>{JSON.stringify(path)}</code>]}
        </p>
      ))}
      {requestId && (
        <p class="quiet">
          Request id <code>{requestId}</code>
        </p>
      )}
    </div>
  );
};
