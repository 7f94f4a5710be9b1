/**
 * The front door of the core: the services, the ports, and what passes between them.
 */
export * from "./services/Access.ts";
export * from "./services/Administration.ts";
export * from "./ports/Answerer.ts";
export * from "./model/ApiKey.ts";
export * from "./archive/ArchiveFormat.ts";
export * from "./archive/ArchiveOrder.ts";
export * from "./services/Asking.ts";
export * from "./services/AskLimits.ts";
export * from "./model/Chat.ts";
export * from "./ports/ChatArchive.ts";
export * from "./model/Chatbot.ts";
export * from "./ports/ChatbotDirectory.ts";
export * from "./ports/ChatbotRegistry.ts";
export * from "./services/Chats.ts";
export * from "./ports/ChatStore.ts";
export * from "./services/DrainingRuntime.ts";
export * from "./model/Entry.ts";
export * from "./model/Errors.ts";
export * from "./services/FailureLog.ts";
export * from "./model/Fold.ts";
export * from "./model/KeyState.ts";
export * from "./model/ListQuery.ts";
export type { AnswerEvent, Asked, Progress } from "./services/LiveAnswer.ts";
export * from "./ports/Moderator.ts";
export * from "./services/Retention.ts";
export * from "./model/SchemaErrors.ts";
export * from "./model/Reason.ts";
export * from "./model/IdempotencyKey.ts";
export * from "./model/Text.ts";
export * from "./ports/TurnStore.ts";
