import { toNodeHandler } from "@parley/http/node";
import { createServer } from "node:http";
import { announce, handler } from "./service.ts";

const server = createServer(toNodeHandler(handler));
server.listen(0, "127.0.0.1", () => announce(server.address()));
