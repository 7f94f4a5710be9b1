/** Something reads the body before Parley gets the request, and leaves nothing of it. */
import { toNodeHandler } from "@parley/http/node";
import { once } from "node:events";
import { createServer } from "node:http";
import { announce } from "./announce.ts";
import { handler } from "./service.ts";

const readers = {
  raw: toNodeHandler(handler),
  web: toNodeHandler(async (request) => {
    await request.json();
    return handler(request);
  }),
};
const server = createServer(async (request, response) => {
  if (request.url === "/raw") await once(request.resume(), "end");
  const mounted = request.url === "/web" ? readers.web : readers.raw;
  await mounted(Object.assign(request, { originalUrl: "/support/ask" }), response);
});
server.listen(0, "127.0.0.1", () => announce(server.address()));
