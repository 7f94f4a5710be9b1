/**
 * What the server needs of `node:http` beyond its documentation, tested with Node 24 and, less thoroughly, with 22.19:
 * look here first when a new major version of Node breaks a test of the listener.
 */
import { ServerResponse, type Server } from "node:http";
import type { Socket } from "node:net";

/** How long the server reads on after the last response of a connection, in milliseconds. */
const lingerMillis = 2_000;

let pendingEnds: Array<() => void> = [];
const sendPendingEnds = (): void => {
  const ends = pendingEnds;
  pendingEnds = [];
  for (const end of ends) end();
};

/**
 * Sends the responses that end in one iteration of the event loop together at its end, so that a client wakes up once
 * for all of them. Head and body go out in one write.
 */
export class BatchedResponse extends ServerResponse {
  override end(...rest: ReadonlyArray<any>): this {
    const end = () => Reflect.apply(super.end, this, rest);
    if (pendingEnds.push(end) === 1) setImmediate(sendPendingEnds);
    return this;
  }
}
// Effect turns this property on, and Node then writes an empty chunk after the body.
Object.defineProperty(BatchedResponse.prototype, "strictContentLength", {
  get: () => false,
  set: () => {},
});

/** Keeps a connection open when the client closes its sending half: the client may still read. */
export const allowHalfOpen = (server: Server): void => {
  Object.assign(server, { httpAllowHalfOpen: true });
};

/**
 * Node calls `destroySoon` after the last response. Closing a connection with unread bytes resets it, and the client
 * may lose the response, so the server closes its sending half and reads on for a while.
 */
export const lingerOnClose = (socket: Socket): void => {
  socket.destroySoon = () => {
    socket.end();
    const timer = setTimeout(() => socket.destroy(), lingerMillis);
    socket.once("close", () => clearTimeout(timer));
  };
};

/**
 * After CONNECT, Node detaches itself from the connection. Earlier responses on it may still wait for it to drain, so
 * this passes the event on.
 */
export const keepDraining = (socket: Socket): void => {
  socket.on("drain", () =>
    (socket as { _httpMessage?: ServerResponse })._httpMessage?.emit("drain"),
  );
};

/**
 * How many bytes the system has accepted from a socket, and how many wait in the process. `bytesWritten` of the socket
 * itself counts a large chunk as soon as it starts to be sent.
 */
export const progressOf = (socket: Socket): { readonly sent: number; readonly queued: number } => {
  const { bytesWritten = 0, writeQueueSize = 0 } = (socket as any)._handle ?? {};
  return { sent: bytesWritten - writeQueueSize, queued: writeQueueSize };
};
