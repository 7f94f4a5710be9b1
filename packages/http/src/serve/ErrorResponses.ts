/**
 * Responses to requests that fail.
 */
import type { AskError } from "@parley/core";
import type {
  AskNotFound,
  EntryNotFound,
  KeyRejected,
  RateExceeded,
  UserRefNotGranted,
} from "@parley/core/ports";
import { Cause, Data, Option, type Effect } from "effect";
import type { HttpServerResponse } from "effect/http";
import { generalCodes, validationCodes, type GeneralMessage } from "../contract/Codes.ts";
import { toJsonResponse, type ResponseBody } from "../contract/Wire.ts";
import { toMessage, type Problem, type ValidationFailed } from "./ValidationErrors.ts";

type Response = HttpServerResponse.HttpServerResponse;

/** A failure with a public message: a request that breaks a rule of the interface, or a defect (`INTERNAL_ERROR`). */
export class RequestRefused extends Data.TaggedError("RequestRefused")<{
  readonly reason: GeneralMessage;
}> {}

/** Why a request fails. */
export type RequestError =
  | AskError
  | AskNotFound
  | EntryNotFound
  | KeyRejected
  | RateExceeded
  | UserRefNotGranted
  | RequestRefused
  | ValidationFailed;

/** A failure as the client receives it: as a response or as the last event of a stream. */
export interface ErrorResponse {
  readonly body: ResponseBody;
  readonly headers?: Readonly<Record<string, string>>;
  /** The message in the body, or `VALIDATION` for a 422, which may have several messages. */
  readonly reason: GeneralMessage | "VALIDATION";
  /** Why, in a word for operators. */
  readonly cause?: string;
}

/** Logs and counts a failure, and returns its response. */
export type ReportFailure = (cause: Cause.Cause<RequestError>) => Effect.Effect<ErrorResponse>;

/** Returns the body of a general exception. */
export const toGeneralBody = (message: GeneralMessage) => {
  const { code, status } = generalCodes[message];
  return { status, code, message };
};

/** Creates the response to a request for an unknown route. `path` is the path in the request target, as received. */
export const toEndpointNotFound = (method: string, path: string): Response =>
  toJsonResponse({ ...toGeneralBody("INVALID_PATH"), method, path });

/** Returns the response to a failed request, without details of defects. `dto` is the prefix of validation messages. */
export const toErrorResponse = (cause: Cause.Cause<RequestError>, dto = ""): ErrorResponse => {
  const error = Option.getOrElse(
    Cause.findErrorOption(cause),
    () => new RequestRefused({ reason: "INTERNAL_ERROR" }),
  );
  if (error._tag === "ValidationFailed") return toValidationResponse(dto, error.problems);
  if (error._tag === "IdempotencyKeyReused") {
    return toValidationResponse(dto, [[["Idempotency-Key"], "REUSED"]]);
  }
  const reason = error._tag === "RequestRefused" ? error.reason : messages[error._tag];
  return {
    body: toGeneralBody(reason),
    reason,
    ...causeOf(error),
    ...("retryAfterSeconds" in error && {
      headers: { "retry-after": String(error.retryAfterSeconds) },
    }),
  };
};

const causeOf = (error: RequestError): { readonly cause?: string } => {
  if (error._tag === "StorageUnavailable") return { cause: error.reason ?? "down" };
  return error._tag === "Overloaded" || error._tag === "KeyRejected" ? { cause: error.reason } : {};
};

const toValidationResponse = (dto: string, problems: ReadonlyArray<Problem>): ErrorResponse => {
  const errors = problems.map((problem) => {
    const message = toMessage(dto, problem);
    return { code: validationCodes[message], message, path: problem[0] };
  });
  return { body: { status: 422, errors }, reason: "VALIDATION" };
};

const messages = {
  KeyRejected: "API_KEY_NOT_VALID",
  RateExceeded: "RATE_EXCEEDED",
  BudgetSpent: "BUDGET_SPENT",
  UserRefNotGranted: "USER_REF_NOT_GRANTED",
  // The chatbot was deleted while `Access` still remembered its key.
  ChatbotNotFound: "API_KEY_NOT_VALID",
  ChatNotFound: "CHAT_DOES_NOT_EXISTS",
  EntryNotFound: "ENTRY_DOES_NOT_EXIST",
  AskNotFound: "ASK_DOES_NOT_EXIST",
  AnswerStopped: "ANSWER_STOPPED",
  AnswerUnavailable: "ANSWER_UNAVAILABLE",
  // `RequestValues` rejects every value that the core would reject, so this is a defect.
  ArgumentInvalid: "INTERNAL_ERROR",
  StorageUnavailable: "STORAGE_UNAVAILABLE",
  Overloaded: "SERVICE_OVERLOADED",
} as const;
