/**
 * The responses of requests that fail (sections 7.2 to 7.4).
 */
import type { AskError, KeyRejected, IdempotencyKeyReused } from "@parley/core";
import { Cause, Option } from "effect";
import type { HttpServerResponse } from "effect/http";
import { generalCodes, type GeneralMessage } from "../contract/Codes.ts";
import { toJsonResponse, type ResponseBody } from "../contract/Wire.ts";
import { ValidationErrors } from "./ValidationErrors.ts";

type Response = HttpServerResponse.HttpServerResponse;

/** Why a request fails. A handler reports the reuse of an idempotency key among its validation errors. */
export type RequestError =
  | Exclude<AskError, IdempotencyKeyReused>
  | KeyRejected
  | ValidationErrors
  | GeneralMessage;

/** What a client receives of a failure, as a response or as the last event of a stream. */
export interface ErrorResponse {
  readonly body: ResponseBody;
  readonly headers?: Readonly<Record<string, string>>;
}

/** The body of a general exception (section 7.2). */
export const toGeneralBody = (message: GeneralMessage) => {
  const { code, status } = generalCodes[message];
  return { status, code, message };
};

/** The response of a general exception (section 7.2). */
export const toGeneralResponse = (message: GeneralMessage): Response =>
  toJsonResponse(toGeneralBody(message));

/** The response to an unknown route (section 7.4). `path` is the request's target as received, without its query. */
export const toEndpointNotFound = (method: string, path: string): Response =>
  toJsonResponse({ ...toGeneralBody("INVALID_PATH"), method, path });

/** The response to a request that failed; a defect shows no detail. */
export const toErrorResponse = (cause: Cause.Cause<RequestError>): ErrorResponse => {
  const error = Option.getOrElse(
    Cause.findErrorOption(cause),
    (): GeneralMessage => "INTERNAL_ERROR",
  );
  if (typeof error === "string") return { body: toGeneralBody(error) };
  if (error instanceof ValidationErrors) return { body: { status: 422, errors: error.found } };
  switch (error._tag) {
    case "KeyRejected":
    // The chatbot was deleted while `Access` still remembered its key.
    case "ChatbotNotFound":
      return { body: toGeneralBody("API_KEY_NOT_VALID") };
    case "ChatNotFound":
      return { body: toGeneralBody("CHAT_DOES_NOT_EXISTS") };
    case "AnswerUnavailable":
      return { body: toGeneralBody("ANSWER_UNAVAILABLE") };
    case "StorageUnavailable":
      return { body: toGeneralBody("STORAGE_UNAVAILABLE") };
    case "Overloaded":
      return {
        body: toGeneralBody("SERVICE_OVERLOADED"),
        headers: { "retry-after": String(error.retryAfterSeconds) },
      };
  }
};
