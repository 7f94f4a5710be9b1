/**
 * `@parley/client`: a client based on `fetch`, with no other dependencies.
 */
export { makeClient } from "./Client.ts";
export { ConnectionError, ResponseError, ValidationError } from "./Connection.ts";
export type {
  AnswerEvent,
  AskOptions,
  Attempt,
  CallOptions,
  Chat,
  ChatbotDetails,
  ChatsQuery,
  Client,
  ClientOptions,
  Entry,
  HistoryQuery,
  List,
  ListQuery,
  NewChat,
  Page,
  PostOptions,
  Question,
} from "./Interface.ts";
