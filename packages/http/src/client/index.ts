/**
 * `@parley/http/client`: a client on `fetch`, without other dependencies.
 */
export { makeClient } from "./Client.ts";
export { ConnectionError, ResponseError, ValidationError } from "./Connection.ts";
export type * from "./Interface.ts";
