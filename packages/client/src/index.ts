/**
 * `@parley/client`: a client based on `fetch`, with no other dependencies.
 */
export { makeClient } from "./Client.ts";
export { ConnectionError, ResponseError, ValidationError } from "./Connection.ts";
export { hasQuestion } from "./Interface.ts";
export type * from "./Interface.ts";
