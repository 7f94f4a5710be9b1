/**
 * The requests of a Node server. Every response has a shape of the contract, also where Node itself would answer or hang
 * up. Responses are sent in the order of their requests, each whole, and none after a last one: a response that does not
 * keep its connection alive.
 */
import {
  toGeneralBody,
  toMethod,
  toRequestId,
  type GeneralMessage,
  type RequestLog,
} from "@parley/http";
import { IncomingMessage, ServerResponse, type Server } from "node:http";
import type { Socket } from "node:net";

/** How long the server reads on after a last response, in milliseconds. */
const lingering = 2_000;

/** How many requests of one connection may await their responses. Each costs the process kilobytes. */
const maxUnanswered = 100;

const clientErrors: Readonly<Record<string, GeneralMessage>> = {
  HPE_HEADER_OVERFLOW: "HEADERS_TOO_LARGE",
  ERR_HTTP_REQUEST_TIMEOUT: "REQUEST_TIMEOUT",
};

let ended: Array<() => void> = [];
const sendEnded = (): void => {
  const responses = ended;
  ended = [];
  for (const end of responses) end();
};

/**
 * Responses that end in one turn of the event loop are sent back to back at its end, so that their clients wake up once
 * and not once for each. Head and body go out in one write.
 */
export class BatchedResponse extends ServerResponse {
  override end(...rest: ReadonlyArray<any>): this {
    if (ended.push(() => Reflect.apply(super.end, this, rest)) === 1) setImmediate(sendEnded);
    return this;
  }
}
// Effect sets it, and Node then writes an empty piece after the body.
Object.defineProperty(BatchedResponse.prototype, "strictContentLength", {
  get: () => false,
  set: () => {},
});

/**
 * The reason to refuse a request that Node accepts: its Host or its coding (RFC 9112, sections 3.2 and 6.1), or an
 * upgrade. `null`: none.
 */
const checkHead = (request: IncomingMessage): GeneralMessage | null => {
  const { headers, httpVersion, rawHeaders, url } = request;
  const hosts = rawHeaders.filter((name, at) => at % 2 === 0 && /^host$/i.test(name));
  const isOld = httpVersion === "1.0";
  const { connection = "", host = isOld ? "" : " ", upgrade } = headers;
  const coding = headers["transfer-encoding"]?.toLowerCase();
  if (hosts.length > 1) return "MALFORMED_REQUEST";
  if (/[\s,/?#@\\]/.test(host) || /^https?:\/\/([/?#]|$)/i.test(url!)) return "MALFORMED_REQUEST";
  if (coding !== undefined && (coding !== "chunked" || isOld)) return "MALFORMED_REQUEST";
  return upgrade !== undefined && /\bupgrade\b/i.test(connection) ? "METHOD_NOT_SUPPORTED" : null;
};

/**
 * Passes the requests of the server to `handle`.
 *
 * @param isStopping whether each response is the last of its connection
 * @param refused called for each refused request
 */
export const serveRequests = (
  server: Server,
  handle: (request: IncomingMessage, response: ServerResponse) => void,
  isStopping: () => boolean,
  refused?: RequestLog["refuse"],
) => {
  interface Connection {
    /** The response to the latest request. */
    latest: ServerResponse | null;
    unanswered: number;
  }
  const connections = new Map<Socket, Connection>();

  /** Whether to answer the request: not behind a last response, nor behind too many that are not sent yet. */
  const begin = (response: ServerResponse): boolean => {
    const { socket } = response.req;
    const connection = connections.get(socket);
    // Nothing could be sent on a connection that the server has closed for sending.
    if (connection === undefined || !socket.writable) return false;
    if (connection.unanswered === maxUnanswered) {
      // A pause would come too late: one read brings thousands of requests, and Node keeps them all.
      connections.delete(socket);
      socket.destroy();
      return false;
    }
    connection.unanswered++;
    if (connection.latest?.shouldKeepAlive === false) return false;
    if (isStopping() || !server.listening) response.shouldKeepAlive = false;
    connection.latest = response;
    response.once("close", () => connection.unanswered--);
    return true;
  };

  /** Answers in place of the application. Node sends the response in its turn, and closes the connection. */
  const refuse = (message: GeneralMessage, response: ServerResponse): void => {
    response.shouldKeepAlive = false;
    response.req.resume();
    const body = toGeneralBody(message);
    const text = JSON.stringify(body);
    const requestId = toRequestId(response.req.headers["x-request-id"]);
    refused?.({ requestId, method: toMethod(response.req.method) }, message, body.status);
    response.writeHead(body.status, {
      "content-type": "application/json; charset=utf-8",
      "content-length": Buffer.byteLength(text),
      "cache-control": "no-store",
      "x-content-type-options": "nosniff",
      "x-request-id": requestId,
    });
    // Not batched: the application must find that the response has ended.
    ServerResponse.prototype.end.call(response, text, "utf8");
  };

  /** Refuses a request for which Node has made no response, once the latest response has been sent. */
  const refuseNext = (socket: Socket, request: IncomingMessage, message: GeneralMessage): void => {
    const connection = connections.get(socket);
    if (connection === undefined || connection.latest?.shouldKeepAlive === false) return;
    const { latest } = connection;
    const response = new ServerResponse(request);
    response.shouldKeepAlive = false;
    connection.latest = response;
    whenClosed(latest, () => {
      if (!socket.writable) return void socket.destroy();
      response.assignSocket(socket);
      response.once("finish", () => socket.destroySoon());
      refuse(message, response);
    });
  };

  server.on("connection", (socket: Socket) => {
    connections.set(socket, { latest: null, unanswered: 0 });
    socket.once("close", () => connections.delete(socket));
    // Node calls it after a last response. Closing a connection with unread bytes would reset it, and lose the response.
    socket.destroySoon = () => {
      socket.end();
      const timer = setTimeout(() => socket.destroy(), lingering);
      socket.once("close", () => clearTimeout(timer));
    };
  });
  server.on("request", (request: IncomingMessage, response: ServerResponse) => {
    if (!begin(response)) return;
    const refusal = checkHead(request);
    if (refusal !== null) return refuse(refusal, response);
    // A target may have the form of a whole URL.
    request.url = request.url!.replace(/^https?:\/\/[^/?#]*\/?/i, "/");
    handle(request, response);
  });
  server.on("checkExpectation", (_: IncomingMessage, response: ServerResponse) => {
    if (begin(response)) refuse("EXPECTATION_NOT_MET", response);
  });
  server.on("connect", (request: IncomingMessage, socket: Socket) => {
    // Node has detached itself from the connection, also from earlier responses that wait for it to drain.
    socket
      .on("drain", () => (socket as { _httpMessage?: ServerResponse })._httpMessage?.emit("drain"))
      .on("error", () => {})
      .on("end", () => socket.destroy())
      .resume();
    refuseNext(socket, request, "METHOD_NOT_SUPPORTED");
  });
  server.on("clientError", (error: NodeJS.ErrnoException, socket: Socket) => {
    const message = clientErrors[error.code ?? ""] ?? "MALFORMED_REQUEST";
    const latest = connections.get(socket)?.latest;
    if (!latest || latest.req.complete) {
      const request = new IncomingMessage(socket);
      // Further malformed bytes are not about its body.
      request.complete = true;
      return refuseNext(socket, request, message);
    }
    // The body of the latest request is malformed. Nothing may follow a response that is half sent.
    if (latest.headersSent) return whenClosed(latest, () => socket.destroySoon());
    refuse(message, latest);
    // Node forgets an answered request, but the application may still wait for its body.
    socket.once("close", () => latest.req.destroy());
  });

  return {
    /** Closes each connection after its latest response. The server has stopped to listen. */
    close: (): void => {
      for (const [socket, connection] of connections) {
        const { latest } = connection;
        if (latest?.headersSent === false) latest.shouldKeepAlive = false;
        whenClosed(latest, () => {
          if (connection.latest === latest) socket.destroySoon();
        });
      }
    },
    destroy: (): void => {
      for (const socket of connections.keys()) socket.destroy();
    },
  };
};

const whenClosed = (response: ServerResponse | null, next: () => void): void =>
  response === null || response.closed ? next() : void response.once("close", next);
