import { toNodeHandler } from "@parley/http/node";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { apiKey, handler } from "./handler.ts";

const server = createServer(toNodeHandler(handler)).listen(process.env["PORT"] ?? 8080, () => {
  const { port } = server.address() as AddressInfo;
  console.log(`http://localhost:${port}/support/chatbot with the key ${apiKey}`);
});
