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
import type { RequestQueue } from "./RequestQueue.ts";

/** How long the server reads on after a last response, in milliseconds. */
const lingering = 2_000;

/** How many requests of one connection may await their responses. Each costs the process kilobytes. */
const maxUnanswered = 100;

/** How many requests of one connection are handled at once. Each may hold a page of megabytes. */
const maxHandled = 8;

/** How long a client may take nothing of what it is sent, in milliseconds, and how often the server looks. */
const patience = 30_000;
const inspection = 5_000;

/** How long a GET goes on whose client has closed its sending half, in milliseconds: such a client has mostly gone. */
const farewell = 1_000;

/** How long a connection stays, beyond the time for a head, whose client has sent nothing, in milliseconds. */
const unused = 55_000;

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

/** How many bytes a socket has been given to send, and how many of them the system has not taken. */
const progressOf = (
  socket: Socket,
): { readonly bytesWritten: number; readonly writeQueueSize: number } =>
  // `bytesWritten` of the socket itself counts a large piece when it begins to be sent.
  (socket as any)._handle ?? { bytesWritten: 0, writeQueueSize: 0 };

export interface ConnectionOptions {
  /** Where requests wait for their turn. */
  readonly queue: RequestQueue;
  /** Whether each response is the last of its connection. */
  readonly isStopping: () => boolean;
  /** What a client that closes its sending half wants of a POST without `On-Disconnect`. */
  readonly onDisconnect: "finish" | "cancel";
  /** Called for each refused request. */
  readonly refused?: RequestLog["refuse"] | undefined;
}

/** Passes the requests of the server to `handle`. */
export const serveRequests = (
  server: Server,
  handle: (request: IncomingMessage, response: ServerResponse) => void,
  { isStopping, onDisconnect, queue, refused }: ConnectionOptions,
) => {
  interface Connection {
    /** The response to the latest request. */
    latest: ServerResponse | null;
    readonly unanswered: Set<ServerResponse>;
    /** Requests behind those that are handled. */
    readonly waiting: Array<() => void>;
    /** How many bytes the client has taken, and since when it has taken no more. */
    taken: number;
    since: number;
  }
  const connections = new Map<Socket, Connection>();

  /** Whether to answer the request: not behind a last response, nor behind too many that are not sent yet. */
  const begin = (response: ServerResponse): boolean => {
    const { socket } = response.req;
    const connection = connections.get(socket);
    // Nothing could be sent on a connection that the server has closed for sending.
    if (connection === undefined || !socket.writable) return false;
    if (connection.unanswered.size === maxUnanswered) {
      // A pause would come too late: one read brings thousands of requests, and Node keeps them all.
      connections.delete(socket);
      socket.destroy();
      return false;
    }
    connection.unanswered.add(response);
    if (connection.latest?.shouldKeepAlive === false) return false;
    if (isStopping() || !server.listening) response.shouldKeepAlive = false;
    connection.latest = response;
    response.once("close", () => {
      connection.unanswered.delete(response);
      connection.waiting.shift()?.();
    });
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
    const connection: Connection = {
      latest: null,
      unanswered: new Set(),
      waiting: [],
      taken: 0,
      since: performance.now(),
    };
    connections.set(socket, connection);
    socket.once("close", () => connections.delete(socket));
    socket.once("end", () => {
      if (connection.latest?.headersSent === false) connection.latest.shouldKeepAlive = false;
      for (const response of connection.unanswered) {
        const { headers, method } = response.req;
        const wish = String(headers["on-disconnect"] ?? onDisconnect).toLowerCase();
        if (method === "POST" && wish !== "cancel") continue;
        const timer = setTimeout(() => socket.destroy(), method === "POST" ? 0 : farewell);
        response.once("close", () => clearTimeout(timer));
      }
    });
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
    const { unanswered, waiting } = connections.get(request.socket)!;
    const enter = () =>
      queue.enter(() => {
        if (response.writableEnded) return;
        handle(request, response);
        // The client hung up while the request waited.
        if (request.destroyed) response.emit("close");
      });
    if (unanswered.size > maxHandled) waiting.push(enter);
    else enter();
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
  const refuseBroken = (socket: Socket, message: GeneralMessage): void => {
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
  };
  server.on("clientError", (error: NodeJS.ErrnoException, socket: Socket) => {
    const message = clientErrors[error.code ?? ""] ?? "MALFORMED_REQUEST";
    if (message !== "REQUEST_TIMEOUT") return refuseBroken(socket, message);
    const latest = () => connections.get(socket)?.latest ?? null;
    const answered = latest()?.req.complete === true ? latest() : null;
    // If the event loop is late, the rest of the request may have arrived long ago. A whole turn of the loop reads it.
    const refuseIncomplete = () => {
      // A client that opens its connection ahead would take the response for that of its first request.
      if (socket.bytesRead === 0) return void setTimeout(closeUnused, unused).unref();
      if (latest() === answered || !latest()!.req.complete) refuseBroken(socket, message);
    };
    const closeUnused = () => socket.bytesRead === 0 && socket.destroySoon();
    setImmediate(() => setImmediate(refuseIncomplete));
  });

  const closeStalled = (): void => {
    const now = performance.now();
    for (const [socket, connection] of connections) {
      const { bytesWritten, writeQueueSize } = progressOf(socket);
      const taken = bytesWritten - writeQueueSize;
      if (writeQueueSize === 0 || taken > connection.taken) connection.since = now;
      else if (now - connection.since >= patience) socket.destroy();
      connection.taken = taken;
    }
  };
  const timer = setInterval(closeStalled, inspection).unref();
  server.once("close", () => clearInterval(timer));

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
