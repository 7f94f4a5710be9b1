/**
 * A way to a server on which no answer ever arrives.
 */
import { once } from "node:events";
import { connect, createServer, type AddressInfo, type Socket } from "node:net";

export interface DeafProxy {
  /** The address of the server's endpoint, by this way. */
  readonly url: string;
  /** Settles with the first bytes that the server answers; they go nowhere. */
  readonly answered: Promise<void>;
  readonly close: () => void;
}

export const startDeafProxy = async (url: string): Promise<DeafProxy> => {
  const target = new URL(url);
  const answered = Promise.withResolvers<void>();
  const sockets = new Set<Socket>();
  const server = createServer((near) => {
    const far = connect(Number(target.port), target.hostname);
    near.pipe(far);
    far.on("data", () => answered.resolve());
    for (const [socket, other] of [
      [near, far],
      [far, near],
    ] as const) {
      sockets.add(socket);
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
    answered: answered.promise,
    close: () => {
      server.close();
      for (const socket of sockets) socket.destroy();
    },
  };
};
