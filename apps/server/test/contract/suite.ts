import { ask } from "./ask.ts";
import { auth } from "./auth.ts";
import { chats } from "./chats.ts";
import type { Server } from "./client.ts";
import { create } from "./create.ts";
import { details } from "./details.ts";
import { history } from "./history.ts";
import { idempotency } from "./idempotency.ts";
import { malformed } from "./malformed.ts";
import { paths } from "./paths.ts";
import { stream } from "./stream.ts";
import { tenants } from "./tenants.ts";

/** The whole contract, against one running server. */
export const contract = (server: Server): void => {
  details(server);
  create(server);
  chats(server);
  history(server);
  ask(server);
  stream(server);
  auth(server);
  tenants(server);
  idempotency(server);
  paths(server);
  malformed(server);
};
