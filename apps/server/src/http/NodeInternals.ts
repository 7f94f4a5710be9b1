/**
 * The undocumented behaviour of `node:http` that the server relies on, tested with Node 24 and, less thoroughly, 22.19.
 * Look here first if a new major version of Node breaks a listener test.
 */
import { ServerResponse, type Server } from "node:http";
import type { Socket } from "node:net";

/** How long the server keeps reading after the last response on a connection, in milliseconds. */
const lingerMillis = 2_000;

let pendingEnds: Array<() => void> = [];
const sendPendingEnds = (): void => {
  const ends = pendingEnds;
  pendingEnds = [];
  for (const end of ends) end();
};

/**
 * Sends all responses that end in one iteration of the event loop together at the end of the iteration, so that a
 * client wakes up only once. Head and body are sent in a single write.
 */
export class BatchedResponse extends ServerResponse {
  override end(...rest: ReadonlyArray<any>): this {
    const end = () => Reflect.apply(super.end, this, rest);
    if (pendingEnds.push(end) === 1) setImmediate(sendPendingEnds);
    return this;
  }
}
// Effect sets this property, which makes Node write an empty chunk after the body.
Object.defineProperty(BatchedResponse.prototype, "strictContentLength", {
  get: () => false,
  set: () => {},
});

/** Keeps a connection open when the client closes its sending half: the client may still read. */
export const allowHalfOpen = (server: Server): void => {
  Object.assign(server, { httpAllowHalfOpen: true });
};

/**
 * Makes `destroySoon`, which Node calls after the last response, close only the sending half and keep reading for a
 * while. Closing a connection with unread bytes would reset it, and the client might lose the response.
 */
export const lingerOnClose = (socket: Socket): void => {
  socket.destroySoon = () => {
    socket.end();
    const timer = setTimeout(() => socket.destroy(), lingerMillis);
    socket.once("close", () => clearTimeout(timer));
  };
};

/**
 * Passes `drain` events on to the response in progress. After CONNECT, Node detaches itself from the socket, but
 * earlier responses may still be waiting for it to drain.
 */
export const keepDraining = (socket: Socket): void => {
  socket.on("drain", () =>
    (socket as { _httpMessage?: ServerResponse })._httpMessage?.emit("drain"),
  );
};

/**
 * Returns how many bytes of a socket the operating system has accepted, and how many are still queued in the process.
 * The socket's own `bytesWritten` counts the whole of a large chunk as soon as its first bytes are sent.
 */
export const progressOf = (socket: Socket): { readonly sent: number; readonly queued: number } => {
  const { bytesWritten = 0, writeQueueSize = 0 } = (socket as any)._handle ?? {};
  return { sent: bytesWritten - writeQueueSize, queued: writeQueueSize };
};
