/**
 * `@parley/http/client`: a client on `fetch`, without other dependencies.
 */
export {
  makeClient,
  type AskOptions,
  type CallOptions,
  type Client,
  type ClientOptions,
  type PostOptions,
} from "./Client.ts";
export type { Attempt } from "./Connection.ts";
export {
  ConnectionError,
  ResponseError,
  ValidationError,
  type ValueError,
} from "./ClientErrors.ts";
export type {
  AnswerEvent,
  Chat,
  ChatbotDetails,
  ChatsQuery,
  Entry,
  HistoryQuery,
  List,
  ListQuery,
  NewChat,
  Page,
  Question,
} from "./Resources.ts";
