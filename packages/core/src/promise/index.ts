/**
 * The entry point `@parley/core/promise`, for code that does not use Effect.
 */
export { openParley } from "./openParley.ts";
export type * from "./Interface.ts";
export type { Scope } from "../model/ApiKey.ts";
export type { Chat } from "../model/Chat.ts";
export type { Chatbot, ChatbotSettings } from "../model/Chatbot.ts";
export type { Entry, Feedback, Metadata, Usage } from "../model/Entry.ts";
export type { AskError } from "../model/Errors.ts";
export type { AskOrigin } from "../services/asking/AskLimits.ts";
export type { StoredEntry } from "../services/asking/EntryEvents.ts";
export type { AnswererCall, AnswererFunction } from "../ports/Answerer.ts";
export type { UsageSum } from "../ports/ChatArchive.ts";
export type { ModeratorFunction } from "../ports/Moderator.ts";
export type { Store } from "../ports/Store.ts";
export type { AskResult } from "../services/asking/LiveAnswer.ts";
export {
  AnswerStopped,
  AnswerUnavailable,
  AskNotFound,
  ArgumentInvalid,
  BudgetSpent,
  ChatbotNotFound,
  ChatNotFound,
  EntryNotFound,
  IdempotencyKeyReused,
  ImportRefused,
  KeyNotFound,
  KeyRejected,
  Overloaded,
  RateExceeded,
  StorageUnavailable,
  UserRefNotGranted,
} from "../model/Errors.ts";
