/**
 * Handles the requests to a Node server. Every response that the server sends in place of the application conforms to
 * the API contract, even where Node itself would respond or hang up. Responses are sent in the order of their requests,
 * without interleaving. No response follows one with `Connection: close`.
 */
import {
  toGeneralBody,
  toMethod,
  toRequestId,
  type GeneralMessage,
  type RequestTelemetry,
} from "@parley/http";
import { IncomingMessage, ServerResponse, type Server } from "node:http";
import type { Socket } from "node:net";
import { keepDraining, lingerOnClose, progressOf } from "./NodeInternals.ts";
import type { RequestQueue } from "./RequestQueue.ts";

/** How many requests on one connection may await a response. Each request takes up kilobytes of memory. */
const maxUnanswered = 100;

/** How many requests on one connection are handled concurrently. Each response may take up megabytes of memory. */
const maxHandled = 8;

/**
 * A client for which bytes are waiting must read this many of them in this time, or all of them: 16 kB a second, half of
 * what the slowest mobile networks carry. The server disconnects a slower client, and checks at this interval.
 */
const leastRead = { bytes: 480_000, millis: 30_000 };
const inspectionMillis = 5_000;

/**
 * Returns how many connections may be open: half as many as the process may open files, because answers need connections
 * to models. Beyond that, each new connection replaces the oldest on which nothing has arrived or, if there is none, the
 * oldest without a request. Otherwise, clients that only connect could make the system reset all new connections.
 */
const halfOfOpenFiles = (): number => {
  const { userLimits } = process.report.getReport() as {
    userLimits?: { open_files?: { soft: number | string } };
  };
  return Number(userLimits?.open_files?.soft) / 2 || Infinity;
};

/**
 * How often a request other than POST gets an interim response after the client has closed its sending half. If the
 * client has left, as it usually has, its system resets the connection after the first, so the second ends the request.
 */
const halfClosedMillis = 1_000;

/** How long a connection on which no byte has arrived by the headers timeout may then wait for its first request. */
const unusedMillis = 55_000;

const clientErrors: Readonly<Record<string, GeneralMessage>> = {
  HPE_HEADER_OVERFLOW: "HEADERS_TOO_LARGE",
  ERR_HTTP_REQUEST_TIMEOUT: "REQUEST_TIMEOUT",
};

/**
 * Returns the reason to reject a request that Node accepts: an invalid target, `Host` or `Transfer-Encoding` (RFC 9112,
 * sections 3.2 and 6.1), or an upgrade. Returns `null` if there is no reason.
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

export interface ConnectionOptions {
  /** The queue in which requests wait for their turn. */
  readonly queue: RequestQueue;
  /** Whether the server is stopping. If so, each response is the last one on its connection. */
  readonly isStopping: () => boolean;
  /** What happens to a POST without `On-Disconnect` when the client closes its sending half; `finish` by default. */
  readonly onDisconnect?: "finish" | "cancel";
  /** Called for each request that is rejected before the application sees it. */
  readonly onRefusal?: RequestTelemetry["recordRefusal"];
  /** How many connections may be open; by default, half as many as the process may open files. */
  readonly mostConnections?: number;
}

interface Connection {
  /** The response to the latest request. */
  latest: ServerResponse | null;
  readonly unanswered: Set<ServerResponse>;
  /** Functions that start the requests beyond `maxHandled`, which have to wait. */
  readonly delayedStarts: Array<() => void>;
  /** How many bytes the operating system had accepted when the client had last read enough of them, or all. */
  sent: number;
  progressAt: number;
}

/** Passes the server's requests to `handle`. */
export const serveRequests = (
  server: Server,
  handle: (request: IncomingMessage, response: ServerResponse) => void,
  {
    isStopping,
    mostConnections = halfOfOpenFiles(),
    onDisconnect = "finish",
    onRefusal,
    queue,
  }: ConnectionOptions,
) => {
  const connections = new Map<Socket, Connection>();
  const latestOn = (socket: Socket) => connections.get(socket)?.latest ?? null;

  const addConnection = (socket: Socket): void => {
    if (connections.size >= mostConnections) replaceIdle();
    const connection: Connection = {
      latest: null,
      unanswered: new Set(),
      delayedStarts: [],
      sent: 0,
      progressAt: performance.now(),
    };
    connections.set(socket, connection);
    lingerOnClose(socket);
    socket.once("close", () => connections.delete(socket));
    socket.once("end", () => handleHalfClose(socket, connection));
  };

  const replaceIdle = (): void => {
    let idle: Socket | null = null;
    for (const [socket, { unanswered }] of connections) {
      if (socket.bytesRead === 0) return void socket.destroy();
      if (unanswered.size === 0) idle ??= socket;
    }
    idle?.destroy();
  };

  /** Called when the client has closed its sending half. */
  const handleHalfClose = (socket: Socket, { latest, unanswered }: Connection): void => {
    if (latest?.headersSent === false) latest.shouldKeepAlive = false;
    for (const response of unanswered) {
      const { headers, httpVersion, method } = response.req;
      const onClose = String(headers["on-disconnect"] ?? onDisconnect).toLowerCase();
      if (method === "POST" && onClose !== "cancel") continue;
      // A response that has ended may take longer to send.
      const destroyUnlessEnded = () => response.writableEnded || socket.destroy();
      // A response without a socket is waiting for an earlier one. HTTP/1.0 has no interim responses.
      const probe = () =>
        response.socket !== null &&
        !response.headersSent &&
        httpVersion !== "1.0" &&
        response.writeProcessing();
      const timer =
        method === "POST" ? setTimeout(destroyUnlessEnded) : setInterval(probe, halfClosedMillis);
      response.once("close", () => clearTimeout(timer));
    }
  };

  /**
   * Registers the response to a new request. Returns `false` if the response must not be sent, because the connection
   * is closed, an earlier response closes it, or the client is disconnected for having too many unanswered requests.
   */
  const accept = (response: ServerResponse): boolean => {
    const { socket } = response.req;
    const connection = connections.get(socket);
    if (connection === undefined) return false;
    if (connection.unanswered.size === maxUnanswered) {
      // Pausing would be too late: a single read can yield thousands of requests, and Node keeps them all.
      connections.delete(socket);
      socket.destroy();
      return false;
    }
    connection.unanswered.add(response);
    // The server cannot send on a connection whose sending half it has closed.
    if (!socket.writable || connection.latest?.shouldKeepAlive === false) return false;
    if (isStopping() || !server.listening) response.shouldKeepAlive = false;
    connection.latest = response;
    response.once("close", () => {
      connection.unanswered.delete(response);
      connection.delayedStarts.shift()?.();
    });
    return true;
  };

  const receive = (request: IncomingMessage, response: ServerResponse): void => {
    if (!accept(response)) return;
    const refusal = checkHead(request);
    if (refusal !== null) return refuse(refusal, response);
    // A request target may be an absolute URL.
    request.url = request.url!.replace(/^https?:\/\/[^/?#]*\/?/i, "/");
    const { delayedStarts, unanswered } = connections.get(request.socket)!;
    const start = () => {
      if (response.writableEnded) return;
      handle(request, response);
      // The client disconnected while the request was waiting, so the application missed the `close` event.
      if (request.socket.destroyed) response.emit("close");
    };
    const enter = () => queue.enter(request, response, start);
    if (unanswered.size > maxHandled) delayedStarts.push(enter);
    else enter();
  };

  /**
   * Responds in place of the application. Node sends the response after any earlier ones, then closes the connection.
   */
  const refuse = (message: GeneralMessage, response: ServerResponse): void => {
    response.shouldKeepAlive = false;
    response.req.resume();
    const body = toGeneralBody(message);
    const text = JSON.stringify(body);
    const requestId = toRequestId(response.req.headers["x-request-id"]);
    onRefusal?.({ requestId, method: toMethod(response.req.method) }, message, body.status);
    response.writeHead(body.status, {
      "content-type": "application/json; charset=utf-8",
      "content-length": Buffer.byteLength(text),
      "cache-control": "no-store",
      "x-content-type-options": "nosniff",
      "x-request-id": requestId,
    });
    // Bypasses batching: the application must see immediately that the response has ended.
    ServerResponse.prototype.end.call(response, text, "utf8");
  };

  /** Rejects a request for which Node has created no response, once the latest response is complete. */
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

  const refuseExpectation = (_: IncomingMessage, response: ServerResponse): void => {
    if (accept(response)) refuse("EXPECTATION_NOT_MET", response);
  };

  const refuseTunnel = (request: IncomingMessage, socket: Socket): void => {
    keepDraining(socket);
    socket
      .on("error", () => {})
      .on("end", () => socket.destroy())
      .resume();
    refuseNext(socket, request, "METHOD_NOT_SUPPORTED");
  };

  const refuseBroken = (socket: Socket, message: GeneralMessage): void => {
    const latest = latestOn(socket);
    if (latest === null || latest.req.complete) {
      const request = new IncomingMessage(socket);
      // Otherwise, further malformed bytes would count as an error in the body of this request.
      request.complete = true;
      return refuseNext(socket, request, message);
    }
    // The body of the latest request is malformed or late. Nothing may follow a partly sent response.
    if (latest.headersSent) return whenClosed(latest, () => socket.destroySoon());
    refuse(message, latest);
    // Node drops a request once it is answered, but the application may still be waiting for its body.
    socket.once("close", () => latest.req.destroy());
  };

  const handleClientError = (error: NodeJS.ErrnoException, socket: Socket): void => {
    const message = clientErrors[error.code ?? ""] ?? "MALFORMED_REQUEST";
    if (message !== "REQUEST_TIMEOUT") return refuseBroken(socket, message);
    const latest = latestOn(socket);
    const completeResponse = latest?.req.complete === true ? latest : null;
    // If the event loop is late, the rest of the request may have arrived long ago. Waiting for a full iteration lets
    // Node read the rest.
    const refuseIncomplete = () => {
      // A client that opened its connection in advance would take the refusal for the response to its first request.
      if (socket.bytesRead === 0) return void setTimeout(closeUnused, unusedMillis).unref();
      const current = latestOn(socket);
      if (current === completeResponse || !current!.req.complete) refuseBroken(socket, message);
    };
    // Not `bytesRead`: after an empty line, which starts no request, Node does not check its timeouts again.
    const closeUnused = () => latestOn(socket) === null && socket.destroySoon();
    setImmediate(() => setImmediate(refuseIncomplete));
  };

  const closeStalled = (): void => {
    const now = performance.now();
    for (const [socket, connection] of connections) {
      const { queued, sent } = progressOf(socket);
      if (queued === 0 || sent >= connection.sent + leastRead.bytes) {
        connection.progressAt = now;
        connection.sent = sent;
      } else if (now - connection.progressAt >= leastRead.millis) socket.destroy();
    }
  };

  /** Closes each connection after its latest response. The server must have stopped listening. */
  const close = (): void => {
    for (const [socket, connection] of connections) {
      const { latest } = connection;
      if (latest?.headersSent === false) latest.shouldKeepAlive = false;
      whenClosed(latest, () => {
        if (connection.latest === latest) socket.destroySoon();
      });
    }
  };

  const destroy = (): void => {
    for (const socket of connections.keys()) socket.destroy();
  };

  server.on("connection", addConnection);
  server.on("request", receive);
  server.on("checkExpectation", refuseExpectation);
  server.on("connect", refuseTunnel);
  server.on("clientError", handleClientError);
  const timer = setInterval(closeStalled, inspectionMillis).unref();
  server.once("close", () => clearInterval(timer));
  return { close, destroy };
};

const whenClosed = (response: ServerResponse | null, next: () => void): void =>
  response === null || response.closed ? next() : void response.once("close", next);
