/**
 * A Node HTTP server whose every answer is one of the contract's, also where Node would answer by
 * itself or not at all: malformed requests, unmet expectations, upgrades, CONNECT.
 */
import * as NodeHttpServer from "@effect/platform-node/NodeHttpServer";
import { generalBody, requestIdOf, type GeneralMessage } from "@parley/http";
import { Data, Duration, Effect, Scope } from "effect";
import type { HttpServerRequest, HttpServerResponse } from "effect/http";
import { createServer, IncomingMessage, ServerResponse } from "node:http";
import { Socket, type AddressInfo } from "node:net";

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

/** How long the server reads what a refused client still sends, in milliseconds. */
const lingering = 2_000;

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
    ServerResponse: GatheredResponse,
    requireHostHeader: false,
    requestTimeout: 30_000,
    headersTimeout: 10_000,
    keepAliveTimeout: 65_000,
    connectionsCheckingInterval: 5_000,
    maxHeaderSize: 16 * 1024,
  });
  const connections = new Map<Socket, Connection>();
  let isClosing = false;
  const closeNow = (socket: Socket) => void Socket.prototype.destroySoon.call(socket);

  server.on("connection", (socket: Socket) => {
    connections.set(socket, { latest: null, isLast: false });
    socket.once("close", () => connections.delete(socket));
    // After an upgrade nobody else listens for it.
    socket.on("error", () => {});
    // Node calls it after a last response. A connection closed while bytes lie unread takes the response with it.
    socket.destroySoon = () => {
      if (isClosing) return closeNow(socket);
      socket.end();
      const timer = setTimeout(() => socket.destroy(), lingering);
      socket.once("close", () => clearTimeout(timer));
    };
  });

  /** Whether the request is to be answered: one behind the last is not even to be handled. */
  const begin = ({ socket }: IncomingMessage, response: ServerResponse): boolean => {
    const connection = connections.get(socket)!;
    if (connection.isLast) {
      // Node would keep each that still comes until the connection ends, and reads on after the present one.
      process.nextTick(() => socket.pause());
      return false;
    }
    // A client that keeps its connection busy would keep the server from closing.
    if (isClosing) response.shouldKeepAlive = false;
    connection.isLast = !response.shouldKeepAlive;
    connection.latest = response;
    return true;
  };

  /** Answers in the application's place: Node sends it in its turn, and closes the connection. */
  const refuse = (message: GeneralMessage, response: ServerResponse) => {
    connections.get(response.req.socket)!.isLast = true;
    response.shouldKeepAlive = false;
    response.req.resume();
    const body = generalBody(message);
    const text = JSON.stringify(body);
    response.writeHead(body.status, {
      "content-type": "application/json; charset=utf-8",
      "content-length": Buffer.byteLength(text),
      "cache-control": "no-store",
      "x-request-id": requestIdOf(response.req.headers["x-request-id"]),
    });
    // At once: the application must find the response ended.
    Reflect.apply(ServerResponse.prototype.end, response, [text]);
  };
  /** Refuses what has no response, once the latest response has left. */
  const refuseBytes = (message: GeneralMessage, socket: Socket, request: IncomingMessage) => {
    const connection = connections.get(socket);
    if (connection === undefined || connection.isLast) return;
    connection.isLast = true;
    whenClosed(connection.latest, () => {
      if (!socket.writable) return void socket.destroy();
      const response = new ServerResponse(request);
      response.assignSocket(socket);
      response.once("finish", () => socket.destroySoon());
      refuse(message, response);
    });
  };

  server.on("request", (request: IncomingMessage, response: ServerResponse) => {
    if (!begin(request, response)) return;
    const target = originForm(request.url!);
    if (target === undefined || isMalformed(request)) return refuse("MALFORMED_REQUEST", response);
    request.url = target;
    handler(request, response);
  });
  server.on("checkExpectation", (request: IncomingMessage, response: ServerResponse) => {
    if (begin(request, response)) refuse("EXPECTATION_NOT_MET", response);
  });
  const refuseUpgrade = (request: IncomingMessage, socket: Socket) => {
    // Node has let go of the connection, and wakes no response any more that waits to be sent on.
    socket
      .on("drain", () => (socket as { _httpMessage?: ServerResponse })._httpMessage?.emit("drain"))
      .on("end", () => socket.destroy())
      .resume();
    refuseBytes("METHOD_NOT_SUPPORTED", socket, request);
  };
  server.on("upgrade", refuseUpgrade);
  server.on("connect", refuseUpgrade);
  server.on("clientError", (error: ClientError, socket: Socket) => {
    const message = clientErrors[error.code ?? ""] ?? "MALFORMED_REQUEST";
    const latest = connections.get(socket)?.latest ?? null;
    if (latest === null || latest.req.complete) {
      const request = new IncomingMessage(socket);
      request.method = unreadMethod(error);
      return refuseBytes(message, socket, request);
    }
    // The body of the latest request is broken. Its response may be half sent: then nothing is added to it.
    if (latest.headersSent) return whenClosed(latest, () => socket.destroySoon());
    refuse(message, latest);
    // Node forgets a request that is answered; the application may still wait for the body.
    socket.once("close", () => latest.req.destroy());
  });

  /** Closes a connection when nothing is under way on it any more. */
  const close = (socket: Socket, connection: Connection): void => {
    const { latest } = connection;
    if (latest === null || latest.closed) return closeNow(socket);
    if (!latest.headersSent) {
      latest.shouldKeepAlive = false;
      connection.isLast = true;
    }
    // One whose head was sent before had promised to keep its connection.
    latest.once("close", () => setImmediate(close, socket, connection));
  };

  const run = Effect.runForkWith(yield* Effect.context<never>());
  return yield* Effect.acquireRelease(
    Effect.callback<number, ListenFailed>((resume) => {
      const refuse = (cause: Error) => resume(Effect.fail(new ListenFailed({ host, port, cause })));
      server.once("error", refuse);
      server.listen(port, host, () => {
        const bound = (server.address() as AddressInfo).port;
        server.off("error", refuse);
        // Such as that it cannot accept more connections, which passes.
        server.on("error", ({ message }) =>
          run(Effect.logError(`The listener on ${host}:${bound} met an error: ${message}`)),
        );
        resume(Effect.succeed(bound));
      });
    }),
    () =>
      Effect.callback<void>((resume) => {
        server.close(() => resume(Effect.void));
        isClosing = true;
        for (const [socket, connection] of connections) close(socket, connection);
      }).pipe(
        Effect.timeoutOption(grace),
        Effect.andThen(
          Effect.sync(() => {
            for (const socket of connections.keys()) socket.destroy();
          }),
        ),
      ),
  );
});

interface Connection {
  latest: ServerResponse | null;
  /** Whether the latest response is the last. */
  isLast: boolean;
}

const whenClosed = (response: ServerResponse | null, next: () => void): void =>
  response === null || response.closed ? next() : void response.once("close", next);

/**
 * Responses that end in one turn of the event loop are sent back to back at its end: their clients then wake up once, and
 * not once for each. Head and body go out in one write. (Effect sets `strictContentLength`, for which Node writes an empty
 * piece after the body; our bodies are whole texts, and their length is always right.)
 */
class GatheredResponse extends ServerResponse {
  override end(...rest: ReadonlyArray<any>): this {
    if (ended.push(() => Reflect.apply(super.end, this, rest)) === 1) setImmediate(sendEnded);
    return this;
  }
}
Object.defineProperty(GatheredResponse.prototype, "strictContentLength", {
  get: () => false,
  set: () => {},
});

let ended: Array<() => void> = [];
const sendEnded = (): void => {
  const responses = ended;
  ended = [];
  for (const end of responses) end();
};

/** The target without its authority, if it has one, else as received; `undefined` if that is empty. */
const originForm = (target: string): string | undefined => {
  if (target.startsWith("/")) return target;
  const [, authority, rest = ""] = /^https?:\/\/([^/?#]*)(.*)$/is.exec(target) ?? [];
  if (authority === undefined) return target;
  if (authority === "") return undefined;
  return rest.startsWith("/") ? rest : `/${rest}`;
};

/** What Node lets pass and RFC 9112 does not (sections 3.2, 6.1 and 6.3). */
const isMalformed = ({ headers, httpVersion, rawHeaders }: IncomingMessage): boolean => {
  const coding = headers["transfer-encoding"];
  if (coding !== undefined && (coding.toLowerCase() !== "chunked" || httpVersion === "1.0")) {
    return true;
  }
  let hosts = 0;
  for (let at = 0; at < rawHeaders.length; at += 2) {
    const name = rawHeaders[at]!;
    if (name.length === 4 && name.toLowerCase() === "host") hosts++;
  }
  return httpVersion === "1.1" ? hosts !== 1 || !host.test(headers.host!) : hosts > 1;
};

const host = /^[^\s,/?#@\\]*$/;

/** What Node tells of bytes that are no request: the last of them, and how far it understood those. */
interface ClientError extends NodeJS.ErrnoException {
  readonly rawPacket?: Buffer;
  readonly bytesParsed?: number;
}

/** The method of a request whose head is malformed, if that came in one piece: HEAD must not get a body. */
const unreadMethod = ({ bytesParsed = 0, rawPacket }: ClientError): string | undefined => {
  const understood = rawPacket?.toString("latin1", 0, bytesParsed) ?? "";
  return /(?:^|\r\n\r\n)\s*(\w+) (?:(?!\r\n\r\n)[^])*$/.exec(understood)?.[1];
};

const clientErrors: Readonly<Record<string, GeneralMessage>> = {
  HPE_HEADER_OVERFLOW: "HEADERS_TOO_LARGE",
  ERR_HTTP_REQUEST_TIMEOUT: "REQUEST_TIMEOUT",
};
