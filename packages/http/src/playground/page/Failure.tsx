/**
 * A failure of a request: the contract's message and code, and the id by which the operator finds it in the log.
 */
import { ConnectionError, ResponseError, ValidationError } from "../../client/index.ts";

interface FailureProps {
  /** `null`: there is none. */
  readonly error: unknown;
  readonly retry?: () => void;
}

export const Failure = ({ error, retry }: FailureProps) => {
  if (error === null) return null;
  return (
    <div class="failure" role="alert">
      {error instanceof ResponseError ? <Response error={error} /> : <p>{describe(error)}</p>}
      {retry && <button onClick={retry}>Try again</button>}
    </div>
  );
};

const describe = (error: unknown): string =>
  error instanceof ConnectionError ? "The server did not answer. Is it running?" : String(error);

const Response = ({ error }: { readonly error: ResponseError }) => (
  <div>
    {error instanceof ValidationError ? (
      error.errors.map(({ code, message, path }) => (
        <p>
          <strong class="bad">{message}</strong> code <code>{code}</code> at{" "}
          <code>{JSON.stringify(path)}</code>
        </p>
      ))
    ) : (
      <p>
        <strong class="bad">{error.message}</strong> status {error.status}
        {error.code !== undefined && [", code ", <code>{error.code}</code>]}
      </p>
    )}
    {error.requestId !== undefined && (
      <p class="quiet">
        Request id <code>{error.requestId}</code>
      </p>
    )}
  </div>
);
