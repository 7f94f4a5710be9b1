/**
 * The errors of the core: what a caller can handle. What no caller can handle is a defect.
 */
import { Data, Inspectable } from "effect";

/**
 * The chatbot has no such chat. A chat of another chatbot counts as missing; for a visitor, so does a chat that is not
 * the visitor's own.
 */
export class ChatNotFound extends Data.TaggedError("ChatNotFound")<{ readonly chatId: number }> {
  override message = `The chatbot has no chat ${this.chatId}.`;
}

/** A different request has used the idempotency key. */
export class IdempotencyKeyReused extends Data.TaggedError("IdempotencyKeyReused") {
  override message =
    "The idempotency key belongs to another request. Use a new key for a new request.";
}

/** The turn has ended, or its lease ended and another request took its chat or its key. The append stored nothing. */
export class TurnLost extends Data.TaggedError("TurnLost") {
  override message = "The turn has ended, or another request took it.";
}

/**
 * The moderator or the answerer failed after all its attempts, the deadline passed, the answer was empty or broke off,
 * or another ask took the turn. Nothing was stored.
 */
export class AnswerUnavailable extends Data.TaggedError("AnswerUnavailable")<{
  /** For logs; contains no user text. */
  readonly reason: string;
  readonly cause?: unknown;
}> {
  override message = `No answer: ${this.reason}.`;
}

/** The store cannot be reached or failed. Whether it wrote something is unknown. */
export class StorageUnavailable extends Data.TaggedError("StorageUnavailable")<{
  readonly cause: unknown;
}> {
  override message = describeCause(this.cause);
  /** After how many seconds the same request may succeed. */
  readonly retryAfterSeconds = 2;
}

/** The server is overloaded, or it is closing. The same request may succeed after the given time. */
export class Overloaded extends Data.TaggedError("Overloaded")<{
  readonly retryAfterSeconds: number;
}> {
  override message = `The server is overloaded. Try again in ${this.retryAfterSeconds} s.`;
}

/** A rate of the key is exceeded: its own, a visitor's, or that of new visitors. The same request may succeed later. */
export class RateExceeded extends Data.TaggedError("RateExceeded")<{
  readonly apiKeyId: string;
  readonly retryAfterSeconds: number;
}> {
  override message = `The key or its visitor has exceeded its rate. Try again in ${this.retryAfterSeconds} s.`;
}

/** The key has spent its daily budget. The same request may succeed on the next day (UTC). */
export class BudgetSpent extends Data.TaggedError("BudgetSpent")<{
  readonly apiKeyId: string;
  readonly retryAfterSeconds: number;
}> {
  override message = `The key has spent its daily budget. Try again in ${this.retryAfterSeconds} s.`;
}

/** A visitor tried to create a chat with a `userRef` other than their own. */
export class UserRefNotGranted extends Data.TaggedError("UserRefNotGranted") {
  override message = "A visitor can create chats only with the visitor's own userRef.";
}

/**
 * The API key is malformed, unknown, expired or revoked, or the visitor token is not valid. The error does not say
 * which.
 */
export class KeyRejected extends Data.TaggedError("KeyRejected") {
  override message = "The API key or visitor token is not valid.";
}

/** A key with this id exists. Nothing was written. */
export class KeyTaken extends Data.TaggedError("KeyTaken")<{ readonly keyId: string }> {
  override message = `The key prl_${this.keyId}_… already exists.`;
}

/** The chatbot has no key with this id, or the key is revoked. */
export class KeyNotFound extends Data.TaggedError("KeyNotFound")<{ readonly keyId: string }> {
  override message = `The chatbot has no live key prl_${this.keyId}_….`;
}

/** No chatbot has this id. */
export class ChatbotNotFound extends Data.TaggedError("ChatbotNotFound")<{
  readonly chatbot: number;
}> {
  override message = `There is no chatbot ${this.chatbot}.`;
}

/** The workspace has another chatbot of this name. Nothing was written. */
export class ChatbotTaken extends Data.TaggedError("ChatbotTaken")<{
  readonly workspaceName: string;
  readonly name: string;
}> {
  override message = `The workspace "${this.workspaceName}" already has a chatbot "${this.name}".`;
}

/** An argument breaks a rule. Nothing was written. The message names every wrong field. */
export class ArgumentInvalid extends Data.TaggedError("ArgumentInvalid")<{
  /** The first wrong field, such as `question` or `settings.model`; empty for the argument as a whole. */
  readonly field: string;
  readonly reason: string;
  readonly message: string;
}> {}

/** The import is not possible. Nothing was written. */
export class ImportRefused extends Data.TaggedError("ImportRefused")<{ readonly reason: string }> {
  override message = `The import was refused, and nothing was written: ${this.reason}.`;
}

/** Every error that an ask can fail with. */
export type AskError =
  | ArgumentInvalid
  | ChatbotNotFound
  | ChatNotFound
  | IdempotencyKeyReused
  | AnswerUnavailable
  | BudgetSpent
  | StorageUnavailable
  | Overloaded;

/** The message of an error's innermost cause, on one line; for several failed connection attempts, each message. */
export const describeCause = (error: unknown): string => {
  let inner = error;
  while (inner instanceof Error && inner.cause instanceof Error) inner = inner.cause;
  return messageOf(inner).replace(/\s+/g, " ");
};

const messageOf = (error: unknown): string => {
  if (!(error instanceof Error)) return Inspectable.toStringUnknown(error, 0);
  // If all connections to a host name with several addresses fail, the error is an `AggregateError` without a message.
  if (error.message === "" && error instanceof AggregateError && error.errors.length > 0)
    return [...new Set(error.errors.map(describeCause))].join("; ");
  return error.message || error.name;
};

/** The name of a thrown error. Its message is left out, because it may contain user text. */
export const nameOf = (thrown: unknown): string =>
  thrown instanceof Error ? thrown.name : "a value that is not an error";
