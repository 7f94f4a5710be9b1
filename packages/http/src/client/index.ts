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
export {
  ConnectionError,
  ResponseError,
  ValidationError,
  type Attempt,
  type ValueError,
} from "./Connection.ts";
export type * from "./Resources.ts";
