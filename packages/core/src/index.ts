/**
 * The front door of the core: the services, the ports, and what passes between them.
 */
export * from "./Access.ts";
export * from "./Administration.ts";
export * from "./Answerer.ts";
export * from "./ApiKey.ts";
export * from "./ArchiveLines.ts";
export * from "./ArchiveOrder.ts";
export * from "./Asking.ts";
export * from "./AskLimits.ts";
export * from "./Chat.ts";
export * from "./ChatArchive.ts";
export * from "./Chatbot.ts";
export * from "./ChatbotDirectory.ts";
export * from "./ChatbotRegistry.ts";
export * from "./Chats.ts";
export * from "./ChatStore.ts";
export * from "./DrainingRuntime.ts";
export * from "./Entry.ts";
export * from "./Errors.ts";
export * from "./FailureLog.ts";
export * from "./Fold.ts";
export * from "./KeyState.ts";
export * from "./ListQuery.ts";
export type { AnswerEvent, Asked, Progress } from "./LiveAnswer.ts";
export * from "./Moderator.ts";
export * from "./Retention.ts";
export * from "./Problems.ts";
export * from "./Reason.ts";
export * from "./RetryKey.ts";
export * from "./Text.ts";
export * from "./TurnStore.ts";
