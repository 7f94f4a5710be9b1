import { ask } from "./suites/ask.ts";
import { auth } from "./suites/auth.ts";
import { changes } from "./suites/changes.ts";
import { chats } from "./suites/chats.ts";
import type { Server } from "./client.ts";
import { create } from "./suites/create.ts";
import { details } from "./suites/details.ts";
import { history } from "./suites/history.ts";
import { idempotency } from "./suites/idempotency.ts";
import { include } from "./suites/include.ts";
import { invalid } from "./suites/invalid.ts";
import { malformed } from "./suites/malformed.ts";
import { paths } from "./suites/paths.ts";
import { stop } from "./suites/stop.ts";
import { stream } from "./suites/stream.ts";
import { visitors } from "./suites/visitors.ts";

/** The whole contract, against one running server. */
export const contract = (server: Server): void => {
  interfaces(server);
  malformed(server);
};

/** What the contract promises about well-formed HTTP. */
export const interfaces = (server: Server): void => {
  details(server);
  create(server);
  invalid(server);
  chats(server);
  history(server);
  ask(server);
  stream(server);
  stop(server);
  auth(server);
  visitors(server);
  idempotency(server);
  changes(server);
  include(server);
  paths(server);
};
