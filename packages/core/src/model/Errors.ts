/**
 * The errors of the core that a caller can handle. Any other failure is a defect.
 */
import { Data, Inspectable } from "effect";

/**
 * The chatbot has no such chat. A chat that belongs to another chatbot counts as missing. To a visitor, so does any
 * chat that is not their own.
 */
export class ChatNotFound extends Data.TaggedError("ChatNotFound")<{ readonly chatId: number }> {
  override message = `The chatbot has no chat ${this.chatId}.`;
}

/** The chat has no such entry. */
export class EntryNotFound extends Data.TaggedError("EntryNotFound")<{
  readonly chatId: number;
  readonly entryId: number;
}> {
  override message = `The chat ${this.chatId} has no entry ${this.entryId}.`;
}

/** A different request has used the idempotency key. */
export class IdempotencyKeyReused extends Data.TaggedError("IdempotencyKeyReused") {
  override message =
    "The idempotency key was used for a different request. Use a new key for a new request.";
}

/** The turn has ended, or its lease expired and another request took its chat or its key. Nothing was appended. */
export class TurnLost extends Data.TaggedError("TurnLost") {
  override message = "The turn has ended, or another request took it.";
}

/**
 * The moderator or the answerer failed on every attempt, the deadline passed, the answer was empty or broke off, or the
 * turn was lost to another ask or an erasure. Nothing was stored.
 */
export class AnswerUnavailable extends Data.TaggedError("AnswerUnavailable")<{
  /** For logs; contains no user text. */
  readonly reason: string;
  readonly cause?: unknown;
}> {
  override message = `The ask failed: ${this.reason}.`;
}

/** A client has stopped the ask. Nothing was stored, and for 24 hours every repetition of the request fails, too. */
export class AnswerStopped extends Data.TaggedError("AnswerStopped") {
  override message = "A client has stopped the ask.";
}

/** The idempotency key is not that of an ask that is in progress, stopped or answered. */
export class AskNotFound extends Data.TaggedError("AskNotFound") {
  override message = "No ask with this idempotency key is in progress, stopped or answered.";
}

/** Why a store fails, for metrics: it is `down` unless it says otherwise. */
export const storageReasons = [
  "down",
  "refused",
  "disk_full",
  "read_only",
  "no_connection",
  "timeout",
] as const;
export type StorageReason = (typeof storageReasons)[number];

/** The store failed or could not be reached. It may or may not have written something. */
export class StorageUnavailable extends Data.TaggedError("StorageUnavailable")<{
  readonly cause: unknown;
  readonly reason?: StorageReason;
}> {
  override message = describeCause(this.cause);
  /** How many seconds to wait before retrying the request. */
  readonly retryAfterSeconds = 2;
}

/** What there was too much of, for metrics, and in words for the log. */
export const overloadReasons = {
  chat_queue: "too many asks wait in the chat, or this one has waited for too long",
  key_share: "the key, or its visitor, has as many asks in progress as it may have",
  server_full: "as many asks are in progress as the server accepts",
  readers: "too many requests read the answer of one ask",
  event_loop: "too many requests of the key wait for the event loop",
  slow_list: "too many long lists are being read, or this one took too long",
  locked: "an import, an erasure or a migration has locked the rows for too long",
  database_busy: "all connections to the database were in use for too long",
  stopping: "the server is stopping",
} as const;
export type OverloadReason = keyof typeof overloadReasons;

/** The server is overloaded or shutting down. The same request may succeed after `retryAfterSeconds`. */
export class Overloaded extends Data.TaggedError("Overloaded")<{
  readonly retryAfterSeconds: number;
  readonly reason: OverloadReason;
}> {
  override message = `The server is overloaded: ${overloadReasons[this.reason]}. Try again in ${this.retryAfterSeconds} s.`;
}

/** A rate limit of the key, of a visitor or on new visitors was exceeded. The same request may succeed later. */
export class RateExceeded extends Data.TaggedError("RateExceeded")<{
  readonly apiKeyId: string;
  readonly retryAfterSeconds: number;
}> {
  override message = `The key or its visitor has exceeded a rate limit. Try again in ${this.retryAfterSeconds} s.`;
}

/** The key has spent its daily budget. The same request may succeed the next day (UTC). */
export class BudgetSpent extends Data.TaggedError("BudgetSpent")<{
  readonly apiKeyId: string;
  readonly retryAfterSeconds: number;
}> {
  override message = `The key has spent its daily budget. Try again in ${this.retryAfterSeconds} s.`;
}

/** A visitor tried to create a chat with a `userRef` other than their own. */
export class UserRefNotGranted extends Data.TaggedError("UserRefNotGranted") {
  override message = "A visitor can create chats only with their own userRef.";
}

/**
 * The API key is malformed, unknown, expired or revoked, or the visitor token is not valid. Only `reason`, which is for
 * the log, says which: clients must not learn it.
 */
export class KeyRejected extends Data.TaggedError("KeyRejected")<{
  readonly reason: KeyFlaw;
  /** The id of the key, if it exists or existed. */
  readonly apiKeyId?: string;
}> {
  override message = "The API key or visitor token is not valid.";
}

/** What is wrong with a visitor token: its signature, or a claim of a rightly signed one. */
export type TokenFlaw = "signature" | "sub" | "scope" | "exp" | "nbf";

/** What is wrong with a credential. A key with the wrong secret is unknown. */
export type KeyFlaw = TokenFlaw | "malformed" | "unknown" | "expired" | "revoked";

/** A key with this id already exists. Nothing was written. */
export class KeyTaken extends Data.TaggedError("KeyTaken")<{ readonly keyId: string }> {
  override message = `The key prl_${this.keyId}_… already exists.`;
}

/** The chatbot has no key with this id, or the key is revoked. */
export class KeyNotFound extends Data.TaggedError("KeyNotFound")<{ readonly keyId: string }> {
  override message = `The chatbot has no key prl_${this.keyId}_…, or the key was revoked.`;
}

/** No chatbot has this id. */
export class ChatbotNotFound extends Data.TaggedError("ChatbotNotFound")<{
  readonly chatbot: number;
}> {
  override message = `There is no chatbot ${this.chatbot}.`;
}

/** The workspace already has a chatbot with this name. Nothing was written. */
export class ChatbotTaken extends Data.TaggedError("ChatbotTaken")<{
  readonly workspaceName: string;
  readonly name: string;
}> {
  override message = `The workspace "${this.workspaceName}" already has a chatbot named "${this.name}".`;
}

/** An argument is invalid. Nothing was written. The message names every invalid field. */
export class ArgumentInvalid extends Data.TaggedError("ArgumentInvalid")<{
  /** The path of the first invalid field, such as `question` or `settings.model`; empty for the argument as a whole. */
  readonly field: string;
  readonly reason: string;
  readonly message: string;
}> {}

/** The chats cannot be imported. Nothing was written. */
export class ImportRefused extends Data.TaggedError("ImportRefused")<{ readonly reason: string }> {
  override message = `Nothing was imported: ${this.reason}.`;
}

/** Every error that an ask can fail with. */
export type AskError =
  | ArgumentInvalid
  | ChatbotNotFound
  | ChatNotFound
  | IdempotencyKeyReused
  | AnswerStopped
  | AnswerUnavailable
  | BudgetSpent
  | StorageUnavailable
  | Overloaded;

/** Returns the message of an error's innermost cause on one line, or every message if several connections failed. */
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

/**
 * Returns the name of a thrown error, and the first place of its stack that belongs to neither the runtime nor a package
 * or, without such a place, the first one. The message is left out because it may contain user text.
 */
export const placeOf = (thrown: unknown): string => {
  if (!(thrown instanceof Error)) return nameOf(thrown);
  const { stack = "" } = thrown;
  const header = String(thrown);
  // The message may have lines that look like frames. It may also have changed since the stack was written.
  const trace = stack.startsWith(header) ? stack.slice(header.length) : stack;
  const frames = /(?:\n\s+at .*)*\s*$/.exec(trace)![0].split("\n");
  const places = frames.flatMap((frame) => {
    const [, inParentheses, bare] =
      /^\s+at (?:async )?(?:.*? \((.+:\d+:\d+)\)|(.+:\d+:\d+))$/.exec(frame) ?? [];
    return inParentheses ?? bare ?? [];
  });
  const place = places.find((place) => !notOfTheProgram.test(place)) ?? places[0];
  return `${nameOf(thrown)}${place === undefined ? "" : ` at ${place}`}`;
};

/** A module of the runtime, such as `node:internal/…`, or a file of a package. A drive has only one letter. */
const notOfTheProgram = /^\w{2,}:(?!\/\/)|[\\/]node_modules[\\/]/;

/** Returns the name of a thrown error. Its message is left out because it may contain user text. */
export const nameOf = (thrown: unknown): string =>
  thrown instanceof Error ? thrown.name : "a value that is not an error";
