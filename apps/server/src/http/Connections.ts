/**
 * The connections of a listener. Responses are sent in the order of their requests, each whole, and none after a last
 * one: a response that does not keep its connection alive.
 */
import {
  toGeneralBody,
  toMethod,
  toRequestId,
  type GeneralMessage,
  type RequestLog,
} from "@parley/http";
import { ServerResponse, type IncomingMessage } from "node:http";
import type { Socket } from "node:net";

/** How long the server reads on after a last response, in milliseconds. */
const lingering = 2_000;

/** How many requests of one connection may await their responses. Each costs the process kilobytes. */
const maxUnanswered = 100;

interface Connection {
  /** The response to the latest request. */
  latest: ServerResponse | null;
  unanswered: number;
}

export class Connections {
  readonly #open = new Map<Socket, Connection>();
  readonly #isStopping: () => boolean;
  readonly #refused: RequestLog["refuse"] | undefined;
  #isClosing = false;

  /**
   * @param isStopping whether each response is the last of its connection
   * @param refused called for each refused request
   */
  constructor(isStopping: () => boolean, refused?: RequestLog["refuse"]) {
    this.#isStopping = isStopping;
    this.#refused = refused;
  }

  add(socket: Socket): void {
    this.#open.set(socket, { latest: null, unanswered: 0 });
    socket.once("close", () => this.#open.delete(socket));
    // After CONNECT nothing else listens for it.
    socket.on("error", () => {});
    // Node calls it after a last response. Closing a connection with unread bytes would reset it, and lose the
    // response.
    socket.destroySoon = () => {
      socket.end();
      const timer = setTimeout(() => socket.destroy(), lingering);
      socket.once("close", () => clearTimeout(timer));
    };
  }

  /** The response to the latest request. */
  latest(socket: Socket): ServerResponse | null | undefined {
    return this.#open.get(socket)?.latest;
  }

  /** Whether to answer the request: not behind a last response, nor behind too many that are not sent yet. */
  begin(response: ServerResponse): boolean {
    const { socket } = response.req;
    const connection = this.#open.get(socket);
    if (connection === undefined) return false;
    if (connection.latest?.shouldKeepAlive === false) {
      // Node keeps each further request in memory until the connection ends.
      process.nextTick(() => socket.pause());
      return false;
    }
    if (connection.unanswered === maxUnanswered) {
      // Node reads on while responses are made. A pause would come too late: one read brings thousands of requests.
      this.#open.delete(socket);
      socket.destroy();
      return false;
    }
    if (this.#isClosing || this.#isStopping()) response.shouldKeepAlive = false;
    connection.latest = response;
    connection.unanswered++;
    response.once("close", () => connection.unanswered--);
    return true;
  }

  /** Answers in place of the application. Node sends the response in its turn, and closes the connection. */
  refuse(message: GeneralMessage, response: ServerResponse): void {
    response.shouldKeepAlive = false;
    response.req.resume();
    const body = toGeneralBody(message);
    const text = JSON.stringify(body);
    const requestId = toRequestId(response.req.headers["x-request-id"]);
    this.#refused?.({ requestId, method: toMethod(response.req.method) }, message, body.status);
    response.writeHead(body.status, {
      "content-type": "application/json; charset=utf-8",
      "content-length": Buffer.byteLength(text),
      "cache-control": "no-store",
      "x-request-id": requestId,
    });
    // Not batched: the application must find that the response has ended.
    ServerResponse.prototype.end.call(response, text, "utf8");
  }

  /** Refuses a request for which Node has made no response, once the latest response has been sent. */
  refuseNext(socket: Socket, request: IncomingMessage, message: GeneralMessage): void {
    const connection = this.#open.get(socket);
    if (connection === undefined || connection.latest?.shouldKeepAlive === false) return;
    const { latest } = connection;
    // Further malformed bytes are not about its body.
    request.complete = true;
    const response = new ServerResponse(request);
    response.shouldKeepAlive = false;
    connection.latest = response;
    whenClosed(latest, () => {
      if (!socket.writable) return void socket.destroy();
      response.assignSocket(socket);
      response.once("finish", () => socket.destroySoon());
      this.refuse(message, response);
    });
  }

  /** Makes the latest response of each connection its last. */
  close(): void {
    this.#isClosing = true;
    for (const socket of this.#open.keys()) this.#close(socket);
  }

  #close(socket: Socket): void {
    const latest = this.latest(socket);
    if (!latest || latest.closed) return socket.destroySoon();
    if (!latest.headersSent) latest.shouldKeepAlive = false;
    latest.once("close", () => setImmediate(() => this.#close(socket)));
  }

  destroy(): void {
    for (const socket of this.#open.keys()) socket.destroy();
  }
}

export const whenClosed = (response: ServerResponse | null, next: () => void): void =>
  response === null || response.closed ? next() : void response.once("close", next);
