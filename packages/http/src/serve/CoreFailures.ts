/**
 * What a client is told of everything that the core or the decoding refuses.
 */
import type { AskError, KeyRejected } from "@parley/core";
import type { GeneralMessage } from "../contract/Codes.ts";
import { generalBody, validationBody } from "./ErrorResponses.ts";
import { Problems } from "./ValidationErrors.ts";

export type CoreError = AskError | KeyRejected;

export interface Failure {
  readonly body: { readonly status: number };
  readonly headers?: Readonly<Record<string, string>>;
}

export const failureOf = (error: CoreError | Problems | GeneralMessage): Failure => {
  if (typeof error === "string") return { body: generalBody(error) };
  if (error instanceof Problems) return { body: validationBody(error.found) };
  switch (error._tag) {
    case "KeyRejected":
    // The chatbot was deleted while its key was still remembered.
    case "ChatbotNotFound":
      return { body: generalBody("API_KEY_NOT_VALID") };
    case "ChatNotFound":
      return { body: generalBody("CHAT_DOES_NOT_EXISTS") };
    case "AnswerUnavailable":
      return { body: generalBody("ANSWER_UNAVAILABLE") };
    case "StorageUnavailable":
      return { body: generalBody("STORAGE_UNAVAILABLE") };
    case "Overloaded":
      return {
        body: generalBody("SERVICE_OVERLOADED"),
        headers: { "retry-after": String(error.retryAfterSeconds) },
      };
    // A handler makes a validation error of it.
    case "RetryKeyReused":
      return { body: generalBody("INTERNAL_ERROR") };
  }
};
