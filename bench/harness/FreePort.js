import { once } from "node:events";
import { createServer } from "node:net";
/** A loopback port that nothing listened on a moment ago. */
export const freePort = async () => {
  const server = createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address();
  server.close();
  await once(server, "close");
  return port;
};
//# sourceMappingURL=FreePort.js.map
