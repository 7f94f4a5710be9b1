/**
 * The errors that the client's promises reject with. A caller's `AbortSignal` rejects with its own reason instead.
 */

/** The server answered with a failure (section 7). */
export class ResponseError extends Error {
  override readonly name: string = "ResponseError";
  readonly status: number;
  /** Missing from a failure that is not the server's, such as a proxy's 502. */
  readonly code: number | undefined;
  /** Finds the failure in the server's log. */
  readonly requestId: string | undefined;
  /** The seconds after which the server asks to be called again. */
  readonly retryAfterSeconds: number | undefined;

  /** `message` is the identifier of the contract, such as `CHAT_DOES_NOT_EXISTS`. */
  constructor(
    message: string,
    { code, requestId, retryAfterSeconds, status }: ResponseFacts & { readonly status: number },
  ) {
    super(message);
    this.status = status;
    this.code = code;
    this.requestId = requestId;
    this.retryAfterSeconds = retryAfterSeconds;
  }
}

interface ResponseFacts {
  readonly code?: number | undefined;
  readonly requestId?: string | undefined;
  readonly retryAfterSeconds?: number | undefined;
}

/** One value that the server refused; `path` is `[]` for the body itself. */
export interface ValueError {
  readonly code: number;
  readonly message: string;
  readonly path: ReadonlyArray<string>;
}

/** The server refused values of the request (status 422); `code` and `message` are those of the first of `errors`. */
export class ValidationError extends ResponseError {
  override readonly name = "ValidationError";
  readonly errors: ReadonlyArray<ValueError>;

  constructor(errors: ReadonlyArray<ValueError>, requestId: string | undefined) {
    super(errors[0]?.message ?? "", { status: 422, code: errors[0]?.code, requestId });
    this.errors = errors;
  }
}

/** No response arrived, it broke off, or the server was silent for longer than the timeout. `cause` tells which. */
export class ConnectionError extends Error {
  override readonly name = "ConnectionError";
}
