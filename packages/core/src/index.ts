/**
 * The public interface of the core: the services, the ports that adapters implement, the model that both share, the
 * export format, and helpers for adapters and servers.
 */

// Services
export {
  Access,
  type Principal,
  type VisitorClaims,
  type VisitorTokens,
} from "./services/Access.ts";
export { Administration, type CreatedKey } from "./services/Administration.ts";
export { Asking, type Ask } from "./services/Asking.ts";
export { AskDeadline, AskedModel, AskLimits } from "./services/AskLimits.ts";
export { Chats } from "./services/Chats.ts";
export type { AnswerEvent, Asked, Progress, Pulse } from "./services/LiveAnswer.ts";
export { layerRetention } from "./services/Retention.ts";

// Ports
export { Answerer, type AnswerPart } from "./ports/Answerer.ts";
export {
  ChatArchive,
  erasureAt,
  erasureDetail,
  exportDetail,
  importDetail,
  type ArchiveRecord,
  type DatedErasure,
  type Erasable,
  type UsageGroup,
  type UsageSum,
} from "./ports/ChatArchive.ts";
export { ChatbotDirectory, grantOf, type Grant } from "./ports/ChatbotDirectory.ts";
export {
  changedFields,
  ChatbotRegistry,
  fieldChanges,
  type AuditRecord,
  type ChatbotChange,
  type FieldChange,
  type KeyChange,
  type NewChatbot,
  type RegisteredChatbot,
} from "./ports/ChatbotRegistry.ts";
export { ChatStore, type ChatToCreate, type Created } from "./ports/ChatStore.ts";
export { StoreState } from "./ports/StoreState.ts";
export { Moderator, unflagged, type Moderation } from "./ports/Moderator.ts";
export {
  turnEntries,
  turnLease,
  turnPrecedence,
  TurnStore,
  type Taken,
  type Turn,
} from "./ports/TurnStore.ts";

// Model
export {
  generateKey,
  hashKey,
  keyId,
  keyRecord,
  keyState,
  plainKey,
  PointInTime,
  RatePerMinute,
  Scopes,
  scopes,
  signingSecretOf,
  TokensPerDay,
  type KeyRecord,
  type RegisteredKey,
  type Scope,
} from "./model/ApiKey.ts";
export { NewChat, type Chat } from "./model/Chat.ts";
export { ChatbotSettings, defaultSettings, LongText, Name, type Chatbot } from "./model/Chatbot.ts";
export { helloEntry, type Entry, type NewEntry, type Usage } from "./model/Entry.ts";
export {
  AnswerUnavailable,
  ChatbotNotFound,
  ChatbotTaken,
  ChatNotFound,
  DeclarationInvalid,
  ImportRefused,
  KeyNotFound,
  KeyRejected,
  KeyTaken,
  Overloaded,
  RateExceeded,
  IdempotencyKeyReused,
  StorageUnavailable,
  TurnLost,
  UserRefNotGranted,
  type AskError,
} from "./model/Errors.ts";
export {
  IdempotencyKeyText,
  idempotencyKeyLifetime,
  type IdempotencyKey,
} from "./model/IdempotencyKey.ts";
export {
  chatFields,
  entryFields,
  Limit,
  newest,
  newestChats,
  PageNumber,
  type ChatField,
  type ChatQuery,
  type EntryField,
  type EntryQuery,
  type ListQuery,
  type OrderBy,
  type Page,
} from "./model/ListQuery.ts";
export { describeSchemaError } from "./model/SchemaErrors.ts";
export { ChatName, compareText, fold, isBlank, Question, Text, UserRef } from "./model/Text.ts";

// Export format
export { encodeArchive, decodeArchive } from "./archive/ArchiveFormat.ts";
export { earliestTime, checkArchiveOrder } from "./archive/ArchiveOrder.ts";

// For adapters and servers
export { describeCause } from "./model/Errors.ts";
export { makeDrainingRuntime } from "./services/DrainingRuntime.ts";
export {
  endSpan,
  inSpan,
  isTraced,
  logFailure,
  makeBusiest,
  registerGauge,
  secondsHistogram,
  traceHeaders,
} from "./services/Telemetry.ts";
