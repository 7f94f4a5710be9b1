/**
 * The core's services and values, for callers. Adapters import `@parley/core/ports`; code that does not use Effect
 * imports `@parley/core/promise`.
 */

// Services
export {
  Access,
  type Principal,
  type VisitorClaims,
  type VisitorTokens,
  type Widget,
} from "./services/access/Access.ts";
export { Administration, type CreatedKey } from "./services/Administration.ts";
export { Asking } from "./services/asking/Asking.ts";
export { AskLimits, CurrentAsk, type AskOrigin } from "./services/asking/AskLimits.ts";
export { Chats } from "./services/Chats.ts";
export { EntryEvents, layerEntryEvents, type StoredEntry } from "./services/asking/EntryEvents.ts";
export type { AnswerEvent, AskResult, Progress, KeepAlive } from "./services/asking/LiveAnswer.ts";
export { layerParley } from "./services/Parley.ts";
export { layerRetention } from "./services/Retention.ts";

// Values
export {
  generateKey,
  keyId,
  keyRecord,
  keyState,
  KeyBounds,
  keyLimits,
  plainKey,
  visitorDefaults,
  PointInTime,
  Scopes,
  defaultScopes,
  scopes,
  signingSecretOf,
  boundsOf,
  type KeyRecord,
  type RegisteredKey,
  type Scope,
} from "./model/ApiKey.ts";
export type { Ask, Post } from "./model/Ask.ts";
export { NewChat, type Chat } from "./model/Chat.ts";
export { ChatbotSettings, defaultSettings, LongText, Name, type Chatbot } from "./model/Chatbot.ts";
export {
  hasQuestion,
  pickEntry,
  ratings,
  type Entry,
  type Feedback,
  type Metadata,
} from "./model/Entry.ts";
export { postMetadataProblem, PostMetadata } from "./model/Metadata.ts";
export { ChatbotId, ChatId } from "./model/Ids.ts";
export type { AskError } from "./model/Errors.ts";
export { IdempotencyKeyText } from "./model/IdempotencyKey.ts";
export {
  ChatQuery,
  EntryQuery,
  Limit,
  defaultEntryQuery,
  defaultChatQuery,
  chatIncludes,
  entryIncludes,
  type EntryInclude,
  PageNumber,
  type OrderBy,
  type Page,
} from "./model/ListQuery.ts";
export { describeSchemaError } from "./model/SchemaErrors.ts";
export { ChatName, Comment, isBlank, PostText, questionOf, Text, UserRef } from "./model/Text.ts";

// Export format
export { decodeArchive, encodeArchive } from "./archive/ArchiveFormat.ts";
