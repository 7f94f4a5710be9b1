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
  if (error === null || error === undefined) return null;
  return (
    <div class="failure" role="alert">
      <Facts error={error} />
      {retry && <button onClick={retry}>Try again</button>}
    </div>
  );
};

const Facts = ({ error }: { readonly error: unknown }) => {
  if (error instanceof ValidationError) {
    return (
      <div>
        {error.errors.map(({ code, message, path }) => (
          <p>
            <strong>{message}</strong> <code>{code}</code> at <code>{JSON.stringify(path)}</code>
          </p>
        ))}
        <RequestId id={error.requestId} />
      </div>
    );
  }
  if (error instanceof ResponseError) {
    return (
      <div>
        <p>
          <strong>{error.message}</strong> status {error.status}, code <code>{error.code}</code>
        </p>
        <RequestId id={error.requestId} />
      </div>
    );
  }
  return (
    <p>
      {error instanceof ConnectionError
        ? "The server did not answer. Is it running?"
        : String(error)}
    </p>
  );
};

const RequestId = ({ id }: { readonly id: string | undefined }) =>
  id === undefined ? null : (
    <p class="quiet">
      Request id <code>{id}</code>
    </p>
  );
