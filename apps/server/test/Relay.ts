/**
 * Relays connections to a server, so that a test can read the bytes or hold them back.
 */
import { once } from "node:events";
import { connect, createServer, type AddressInfo, type Socket } from "node:net";

export interface Relay {
  /** The server's address, but with the host and port of the relay. */
  readonly url: string;
  readonly close: () => void;
}

/** `join` connects the client's side of each connection (`near`) to the server's side (`far`). */
export const startRelay = async (
  url: string,
  join: (near: Socket, far: Socket) => void,
): Promise<Relay> => {
  const target = new URL(url);
  const sockets = new Set<Socket>();
  const server = createServer((near) => {
    const far = connect(Number(target.port), target.hostname);
    join(near, far);
    for (const [socket, other] of [
      [near, far],
      [far, near],
    ] as const) {
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
  near.port = String((server.address() as AddressInfo).port);
  return {
    url: near.href,
    close: () => {
      server.close();
      for (const socket of sockets) socket.destroy();
    },
  };
};
