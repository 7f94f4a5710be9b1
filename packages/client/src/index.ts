/**
 * `@parley/client`: a client based on `fetch`, with no other dependencies.
 */
export { makeClient } from "./Client.ts";
export { ConnectionError, ResponseError, ValidationError } from "./Connection.ts";
export { hasQuestion } from "./Interface.ts";
export type {
  AnswerEvent,
  AskOptions,
  Attempt,
  CallOptions,
  Chat,
  ChatbotDetails,
  ChatInclude,
  ChatsQuery,
  Client,
  ClientOptions,
  Entry,
  EntryInclude,
  EntryOptions,
  FeedbackChange,
  HistoryQuery,
  IncludeOptions,
  List,
  ListQuery,
  Metadata,
  NewChat,
  Page,
  PostOptions,
  Question,
} from "./Interface.ts";
