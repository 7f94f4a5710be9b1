/**
 * One connection of a client. Its requests may come faster than they are answered, but the answers go out in their
 * order; what cannot be answered by a handler is refused in its turn, and is the last that is answered.
 */
import { generalBody, type GeneralMessage } from "@parley/http";
import { STATUS_CODES, type ServerResponse } from "node:http";
import type { Socket } from "node:net";

/** How long what a refused client still sends is read, in milliseconds. */
const lingering = 2_000;

export class Connection {
  readonly #socket: Socket;
  /** In order, and some that have left; a listener for each to leave would cost more than to look. */
  #responses: Array<ServerResponse> = [];
  #latest: ServerResponse | null = null;
  /** Whether the latest request is the last that is answered. */
  #isLast = false;
  #isRefused = false;
  #isClosing = false;

  constructor(socket: Socket) {
    this.#socket = socket;
  }

  /** Whether the request is to be answered: one that comes after the last is not even to be handled. */
  begin(response: ServerResponse): boolean {
    if (this.#isLast) {
      // Node would keep each that still comes until the connection ends, and reads on after the present one.
      process.nextTick(() => this.#socket.pause());
      return false;
    }
    if (this.#latest?.closed) this.#responses.length = 0;
    else if (this.#responses.length > 32) this.#responses = this.#responses.filter(isUnderWay);
    this.#responses.push(response);
    this.#latest = response;
    // A client that keeps its connection busy would keep the server from closing.
    if (this.#isClosing) response.shouldKeepAlive = false;
    this.#isLast = !response.shouldKeepAlive;
    return true;
  }

  /** Ends the connection when nothing is under way any more. */
  close(): void {
    this.#isClosing = true;
    const last = this.#responses.findLast(isUnderWay);
    if (last === undefined) return this.#socket.destroySoon();
    if (!last.headersSent) {
      last.shouldKeepAlive = false;
      this.#isLast = true;
    }
    // One whose head was sent before had promised to keep its connection.
    last.once("close", () => setImmediate(() => this.close()));
  }

  /** Refuses bytes that are no request, or in the middle of the latest request's body are not what they should be. */
  refuseBytes(message: GeneralMessage, method: string | undefined): void {
    const broken = this.#latest?.req.complete === false ? this.#latest : null;
    if (broken === null && this.#isLast) return;
    this.#refuse(message, broken?.req.method ?? method, broken);
  }

  /** Refuses a request that nobody handles. */
  refuseRequest(message: GeneralMessage, response: ServerResponse): void {
    response.req.resume();
    this.#refuse(message, response.req.method, response);
  }

  /** Refuses a request whose connection Node has handed over. */
  refuseUpgrade(message: GeneralMessage, method: string | undefined): void {
    // Node does not listen for any of it any more, and answers that came before may need it.
    this.#socket
      .on("drain", () => this.#responses.find(isUnderWay)?.emit("drain"))
      .once("end", () => this.#socket.destroy())
      .resume();
    this.#refuse(message, method, null);
  }

  #refuse(
    message: GeneralMessage,
    method: string | undefined,
    refused: ServerResponse | null,
  ): void {
    if (this.#isRefused) return;
    this.#isRefused = true;
    this.#isLast = true;
    // Nobody else listens for it once Node has handed the connection over.
    this.#socket.on("error", () => {});
    const inTurn = () => {
      // An answer that is under way must not be written into.
      const before = this.#responses.find(
        (one) => isUnderWay(one) && (one !== refused || one.headersSent),
      );
      if (before !== undefined) return void before.once("close", inTurn);
      this.#responses.length = 0;
      this.#end(refused?.headersSent ? "" : textOf(message, method));
    };
    inTurn();
  }

  /** Sends the text and no more. A connection that is closed while bytes lie unread takes the answer with it. */
  #end(text: string): void {
    const socket = this.#socket;
    if (!socket.writable) return void socket.destroy();
    socket.end(text);
    if (this.#isClosing) return socket.destroySoon();
    const timer = setTimeout(() => socket.destroy(), lingering);
    socket.once("close", () => clearTimeout(timer));
  }
}

/** Whether the answer has not left yet. */
const isUnderWay = ({ closed }: ServerResponse): boolean => !closed;

/** A refusal as it goes over the wire. */
const textOf = (message: GeneralMessage, method: string | undefined): string => {
  const body = generalBody(message);
  const text = JSON.stringify(body);
  return (
    `HTTP/1.1 ${body.status} ${STATUS_CODES[body.status]}\r\n` +
    "content-type: application/json; charset=utf-8\r\ncache-control: no-store\r\n" +
    `content-length: ${Buffer.byteLength(text)}\r\n` +
    `connection: close\r\n\r\n${method === "HEAD" ? "" : text}`
  );
};
