/**
 * A relay to a server, on which a test can listen or hold bytes back.
 */
import { once } from "node:events";
import { connect, createServer } from "node:net";
/** `join` connects the two ends of each connection, the client's first, as it likes. */
export const startRelay = async (url, join) => {
  const target = new URL(url);
  const sockets = new Set();
  const server = createServer((near) => {
    const far = connect(Number(target.port), target.hostname);
    join(near, far);
    for (const [socket, other] of [
      [near, far],
      [far, near],
    ]) {
      sockets.add(socket);
      socket.setNoDelay();
      socket.on("error", () => undefined);
      socket.on("close", () => {
        sockets.delete(socket);
        other.destroy();
      });
    }
  });
  await once(server.listen(0, "127.0.0.1"), "listening");
  const near = new URL(url);
  near.port = String(server.address().port);
  return {
    url: near.href,
    close: () => {
      server.close();
      for (const socket of sockets) socket.destroy();
    },
  };
};
//# sourceMappingURL=Relay.js.map
