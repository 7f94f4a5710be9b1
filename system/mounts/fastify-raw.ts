import compress from "@fastify/compress";
import { toNodeHandler } from "@parley/http/node";
import { fastify } from "fastify";
import { announce, handler } from "./service.ts";

const app = fastify();
await app.register(compress, { threshold: 0 });
await app.register(async (parley) => {
  // Parley parses the body itself, and responds if it is invalid.
  parley.removeAllContentTypeParsers();
  parley.addContentTypeParser("*", (_request, _body, done) => done(null));
  parley.all("/support/*", toNodeHandler(handler));
});

await app.listen({ host: "127.0.0.1", port: 0 });
announce(app.server.address());
