/**
 * A Node HTTP server whose every answer is one of the contract's, also where Node would answer by
 * itself or not at all: malformed requests, unmet expectations, upgrades, CONNECT.
 */
import * as NodeHttpServer from "@effect/platform-node/NodeHttpServer";
import { generalBody, type GeneralMessage } from "@parley/http";
import { Data, Duration, Effect, Scope } from "effect";
import type { HttpServerRequest, HttpServerResponse } from "effect/http";
import { createServer, STATUS_CODES, ServerResponse, type IncomingMessage } from "node:http";
import type { AddressInfo } from "node:net";
import type { Duplex } from "node:stream";

export class ListenFailed extends Data.TaggedError("ListenFailed")<{
  readonly host: string;
  readonly port: number;
  readonly cause: NodeJS.ErrnoException;
}> {
  override get message(): string {
    const why = this.cause.code === "EADDRINUSE" ? "the port is taken" : this.cause.message;
    return `Cannot listen on ${this.host}:${this.port}: ${why}.`;
  }
}

export interface ListenOptions {
  readonly host: string;
  /** 0: any free port. */
  readonly port: number;
  /** How long requests under way may take once the listener closes. */
  readonly grace: Duration.Duration;
}

/** Serves `app` until the scope closes; gives the port. New connections are refused from then on. */
export const listen = Effect.fnUntraced(function* <R>(
  app: Effect.Effect<HttpServerResponse.HttpServerResponse, never, R>,
  { grace, host, port }: ListenOptions,
) {
  const requests = yield* Effect.acquireRelease(Scope.make("parallel"), Scope.close);
  const handler = yield* NodeHttpServer.makeHandler(
    app as Effect.Effect<
      HttpServerResponse.HttpServerResponse,
      never,
      Exclude<R, HttpServerRequest.HttpServerRequest>
    >,
    { scope: requests },
  );

  const server = createServer({
    ServerResponse: WholeResponse,
    requireHostHeader: false,
    requestTimeout: 30_000,
    headersTimeout: 10_000,
    keepAliveTimeout: 65_000,
    connectionsCheckingInterval: 5_000,
    maxHeaderSize: 16 * 1024,
  });
  /** The latest response of each connection. */
  const latest = new Map<Duplex, ServerResponse | null>();
  server.on("connection", (socket) => {
    latest.set(socket, null);
    socket.once("close", () => latest.delete(socket));
  });
  let closing = false;
  server.on("request", (request: IncomingMessage, response: ServerResponse) => {
    // A client that keeps its connection busy would keep the server from closing.
    if (closing) response.shouldKeepAlive = false;
    latest.set(request.socket, response);
    if (hostLines(request) !== 1 && request.httpVersion === "1.1") {
      return refuse(response, "MALFORMED_REQUEST");
    }
    handler(request, response);
  });
  server.on("checkExpectation", (_: IncomingMessage, response: ServerResponse) =>
    refuse(response, "EXPECTATION_NOT_MET"),
  );
  server.on("upgrade", ({ method }: IncomingMessage, socket: Duplex) =>
    refuseSocket(socket, method, "METHOD_NOT_SUPPORTED"),
  );
  server.on("connect", ({ method }: IncomingMessage, socket: Duplex) =>
    refuseSocket(socket, method, "METHOD_NOT_SUPPORTED"),
  );
  server.on("clientError", (error: ClientError, socket: Duplex) => {
    const message = clientErrors[error.code ?? ""] ?? "MALFORMED_REQUEST";
    const response = latest.get(socket);
    if (response == null) return refuseSocket(socket, unreadMethod(error), message);
    // The answer that is under way must not be written into.
    if (response.headersSent && !response.writableEnded) return void socket.destroy();
    // What is malformed is the request itself, or one that came after it on the same connection.
    if (!response.req.complete) {
      // Nobody asked for a second answer.
      if (response.headersSent) return void socket.end();
      return refuseSocket(socket, response.req.method, message);
    }
    const refuseNext = () => refuseSocket(socket, unreadMethod(error), message);
    if (response.closed) return refuseNext();
    response.once("close", refuseNext);
  });

  yield* Effect.acquireRelease(
    Effect.callback<void, ListenFailed>((resume) => {
      server.once("error", (cause) => resume(Effect.fail(new ListenFailed({ host, port, cause }))));
      server.listen(port, host, () => resume(Effect.void));
    }),
    () =>
      Effect.callback<void>((resume) => {
        closing = true;
        for (const response of latest.values()) {
          if (response === null || response.closed) continue;
          response.shouldKeepAlive = false;
          // One whose head was sent before had promised to keep its connection.
          response.once("close", () => setImmediate(() => server.closeIdleConnections()));
        }
        server.close(() => resume(Effect.void));
        server.closeIdleConnections();
      }).pipe(
        Effect.timeoutOption(grace),
        Effect.andThen(Effect.sync(() => server.closeAllConnections())),
      ),
  );
  return (server.address() as AddressInfo).port;
});

/**
 * A response whose head and body go out in one write. Effect sets `strictContentLength`, for which Node
 * writes an empty piece after the body; our bodies are whole texts, and their length is always right.
 */
class WholeResponse extends ServerResponse {}
Object.defineProperty(WholeResponse.prototype, "strictContentLength", {
  get: () => false,
  set: () => {},
});

/** How many Host lines a request has: HTTP/1.1 wants exactly one. */
const hostLines = ({ rawHeaders }: IncomingMessage): number => {
  let lines = 0;
  for (let at = 0; at < rawHeaders.length; at += 2) {
    const name = rawHeaders[at]!;
    if (name.length === 4 && name.toLowerCase() === "host") lines++;
  }
  return lines;
};

/** What Node tells of bytes that are no request. */
interface ClientError extends NodeJS.ErrnoException {
  /** What came last. */
  readonly rawPacket?: Buffer;
  /** How far that was understood. */
  readonly bytesParsed?: number;
}

/** The method of a request that is malformed in its head, as far as one can tell. */
const unreadMethod = ({ bytesParsed = 0, rawPacket }: ClientError): string | undefined => {
  const understood = rawPacket?.toString("latin1", 0, bytesParsed) ?? "";
  return /^\w+(?= )/.exec(
    understood.slice(understood.lastIndexOf("\r\n\r\n") + 1).trimStart(),
  )?.[0];
};

const clientErrors: Readonly<Record<string, GeneralMessage>> = {
  HPE_HEADER_OVERFLOW: "HEADERS_TOO_LARGE",
  ERR_HTTP_REQUEST_TIMEOUT: "REQUEST_TIMEOUT",
};

const contentType = "application/json; charset=utf-8";

const refuse = (response: ServerResponse, message: GeneralMessage): void => {
  const body = generalBody(message);
  response
    .writeHead(body.status, { "content-type": contentType, connection: "close" })
    .end(JSON.stringify(body));
};

/** Answers where Node has handed over, or given up on, the bare connection. */
const refuseSocket = (
  socket: Duplex,
  method: string | undefined,
  message: GeneralMessage,
): void => {
  if (!socket.writable) return void socket.destroy();
  const body = generalBody(message);
  const text = JSON.stringify(body);
  socket.end(
    `HTTP/1.1 ${body.status} ${STATUS_CODES[body.status]}\r\n` +
      `content-type: ${contentType}\r\ncontent-length: ${Buffer.byteLength(text)}\r\n` +
      `connection: close\r\n\r\n${method === "HEAD" ? "" : text}`,
  );
};
