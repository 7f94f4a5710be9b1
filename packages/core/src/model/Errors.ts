/**
 * Everything that can go wrong and that somebody can handle. What nobody can handle is a defect.
 */
import { Data } from "effect";

/** No chat of this chatbot has that id. A chat of another chatbot is just as missing. */
export class ChatNotFound extends Data.TaggedError("ChatNotFound")<{
  readonly chatId: number;
}> {
  override get message(): string {
    return `The chatbot has no chat ${this.chatId}.`;
  }
}

/** The retry key was used before for another request. */
export class RetryKeyReused extends Data.TaggedError("RetryKeyReused")<{
  readonly key: string;
}> {}

/** The turn ran out and another took it; nothing was stored. */
export class TurnLost extends Data.TaggedError("TurnLost") {}

/**
 * No answer came: the model failed, timed out, was cut off, or the turn was lost. Nothing is stored. The answerer has made
 * all attempts that it makes.
 */
export class AnswerUnavailable extends Data.TaggedError("AnswerUnavailable")<{
  /** For logs; holds no text of a user. */
  readonly reason: string;
  readonly cause?: unknown;
}> {}

/** The store cannot be reached or refused to work; whether a write took place is unknown. */
export class StorageUnavailable extends Data.TaggedError("StorageUnavailable")<{
  readonly cause: unknown;
}> {
  /** What the innermost cause says, on one line. */
  override get message(): string {
    return reasonOf(this.cause);
  }
}

/** More work than there is room for; try again after the given time. */
export class Overloaded extends Data.TaggedError("Overloaded")<{
  readonly retryAfterSeconds: number;
}> {}

/** The API key is malformed, unknown, expired or revoked: which of them is never told. */
export class KeyRejected extends Data.TaggedError("KeyRejected") {
  override get message(): string {
    return "The API key is not valid.";
  }
}

/** There is a key with that id already; nothing was written. */
export class KeyTaken extends Data.TaggedError("KeyTaken")<{
  readonly keyId: string;
}> {
  override get message(): string {
    return `There is a key prl_${this.keyId}_… already.`;
  }
}

/** No live key of the chatbot has that id. */
export class KeyNotFound extends Data.TaggedError("KeyNotFound")<{
  readonly keyId: string;
}> {
  override get message(): string {
    return `The chatbot has no live key prl_${this.keyId}_….`;
  }
}

/** No chatbot has that id. */
export class ChatbotNotFound extends Data.TaggedError("ChatbotNotFound")<{
  readonly chatbot: number;
}> {
  override get message(): string {
    return `There is no chatbot ${this.chatbot}.`;
  }
}

/** The workspace has another chatbot of that name; nothing was written. */
export class ChatbotTaken extends Data.TaggedError("ChatbotTaken")<{
  readonly workspaceName: string;
  readonly name: string;
}> {
  override get message(): string {
    return `The workspace "${this.workspaceName}" has a chatbot "${this.name}" already.`;
  }
}

/** A name, a setting or a key breaks a rule; nothing was written. */
export class DeclarationInvalid extends Data.TaggedError("DeclarationInvalid")<{
  readonly message: string;
}> {}

/** No chatbot is in a workspace of that name. */
export class WorkspaceNotFound extends Data.TaggedError("WorkspaceNotFound")<{
  readonly workspaceName: string;
}> {
  override get message(): string {
    return `There is no workspace "${this.workspaceName}".`;
  }
}

/** The workspace of that name has chatbots already; nothing was written. */
export class WorkspaceTaken extends Data.TaggedError("WorkspaceTaken")<{
  readonly workspaceName: string;
}> {
  override get message(): string {
    return `There is a workspace "${this.workspaceName}" already.`;
  }
}

/** An import that cannot be carried out; nothing was written. */
export class ImportRefused extends Data.TaggedError("ImportRefused")<{
  readonly reason: string;
}> {
  override get message(): string {
    return `The import was refused, and nothing was written: ${this.reason}.`;
  }
}

/** What can come of an ask instead of an entry. */
export type AskError =
  | ChatbotNotFound
  | ChatNotFound
  | RetryKeyReused
  | AnswerUnavailable
  | StorageUnavailable
  | Overloaded;

/** What the innermost cause says, on one line; of several failed attempts, what each says. */
export const reasonOf = (error: unknown): string => {
  let inner = error;
  while (inner instanceof Error && inner.cause instanceof Error) inner = inner.cause;
  return said(inner).replace(/\s+/g, " ");
};

const said = (error: unknown): string => {
  if (!(error instanceof Error)) return String(error);
  // A name with several addresses, none of which can be reached, fails without a word of its own.
  if (error.message === "" && error instanceof AggregateError && error.errors.length > 0)
    return [...new Set(error.errors.map(reasonOf))].join("; ");
  return error.message || error.name;
};
