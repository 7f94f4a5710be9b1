import compress from "@fastify/compress";
import { toNodeHandler } from "@parley/http/node";
import { fastify } from "fastify";
import { announce, handler } from "./service.ts";

const app = fastify();
await app.register(compress, { threshold: 0 });
app.all("/support/*", toNodeHandler(handler));

await app.listen({ host: "127.0.0.1", port: 0 });
announce(app.server.address());
