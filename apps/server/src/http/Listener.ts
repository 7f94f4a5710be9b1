/**
 * A Node HTTP server whose every response has a shape of the contract, also where Node itself would answer or hang up:
 * malformed requests, unmet expectations, upgrades and CONNECT.
 */
import * as NodeHttpServer from "@effect/platform-node/NodeHttpServer";
import {
  toGeneralBody,
  toMethod,
  toRequestId,
  type GeneralMessage,
  type RequestLog,
} from "@parley/http";
import { Data, Duration, Effect, Scope } from "effect";
import type { HttpServerRequest, HttpServerResponse } from "effect/http";
import { createServer, IncomingMessage, ServerResponse } from "node:http";
import type { AddressInfo, Socket } from "node:net";

export class ListenFailed extends Data.TaggedError("ListenFailed")<{
  readonly host: string;
  readonly port: number;
  readonly cause: NodeJS.ErrnoException;
}> {
  override get message(): string {
    const reason = this.cause.code === "EADDRINUSE" ? "the port is taken" : this.cause.message;
    return `Cannot listen on ${this.host}:${this.port}: ${reason}.`;
  }
}

export interface ListenOptions {
  readonly host: string;
  /** 0: any free port. */
  readonly port: number;
  /** How long requests in flight may take once the listener closes. */
  readonly grace: Duration.Duration;
  /** Called for each request that the listener refuses in the application's place. */
  readonly refused?: RequestLog["refuse"];
}

/** How long the server reads on after a last response, in milliseconds. */
const lingering = 2_000;

/** Serves `app` until the scope closes, and refuses connections from then on. Returns the port. */
export const listen = Effect.fnUntraced(function* <R>(
  app: Effect.Effect<HttpServerResponse.HttpServerResponse, never, R>,
  { grace, host, port, refused }: ListenOptions,
) {
  const requests = yield* Effect.acquireRelease(Scope.make("parallel"), Scope.close);
  const handle = yield* NodeHttpServer.makeHandler(
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
  /** The latest response of each connection. If it is not to be kept alive, nothing behind it is answered. */
  const connections = new Map<Socket, ServerResponse | null>();
  let isClosing = false;

  server.on("connection", (socket: Socket) => {
    connections.set(socket, null);
    socket.once("close", () => connections.delete(socket));
    // After an upgrade nothing else listens for it.
    socket.on("error", () => {});
    // Node calls it after a last response. Closing a connection with unread bytes would reset it, and lose the response.
    socket.destroySoon = () => {
      socket.end();
      const timer = setTimeout(() => socket.destroy(), lingering);
      socket.once("close", () => clearTimeout(timer));
    };
  });

  /** Whether to answer the request: not behind the last response of its connection. */
  const begin = (response: ServerResponse): boolean => {
    const { socket } = response.req;
    if (connections.get(socket)?.shouldKeepAlive === false) {
      // Node keeps each further request in memory until the connection ends.
      process.nextTick(() => socket.pause());
      return false;
    }
    if (isClosing) response.shouldKeepAlive = false;
    connections.set(socket, response);
    return true;
  };

  /** Answers in place of the application. Node sends the response in its turn, and closes the connection. */
  const refuse = (message: GeneralMessage, response: ServerResponse) => {
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
      "x-request-id": requestId,
    });
    // Not gathered: the application must find that the response has ended.
    ServerResponse.prototype.end.call(response, text, "utf8");
  };
  /** Refuses a request for which Node has made no response, once the latest response has been sent. */
  const refuseOn = (socket: Socket, request: IncomingMessage, message: GeneralMessage) => {
    const latest = connections.get(socket);
    if (latest === undefined || latest?.shouldKeepAlive === false) return;
    // Further malformed bytes are not about its body.
    request.complete = true;
    const response = new ServerResponse(request);
    response.shouldKeepAlive = false;
    connections.set(socket, response);
    whenClosed(latest, () => {
      if (!socket.writable) return void socket.destroy();
      response.assignSocket(socket);
      response.once("finish", () => socket.destroySoon());
      refuse(message, response);
    });
  };

  server.on("request", (request: IncomingMessage, response: ServerResponse) => {
    if (!begin(response)) return;
    if (isMalformed(request)) return refuse("MALFORMED_REQUEST", response);
    request.url = originForm(request.url!);
    handle(request, response);
  });
  server.on("checkExpectation", (_: IncomingMessage, response: ServerResponse) => {
    if (begin(response)) refuse("EXPECTATION_NOT_MET", response);
  });
  const refuseUpgrade = (request: IncomingMessage, socket: Socket) => {
    // Node has detached itself from the connection, also from earlier responses that wait for it to drain.
    socket
      .on("drain", () => (socket as { _httpMessage?: ServerResponse })._httpMessage?.emit("drain"))
      .on("end", () => socket.destroy())
      .resume();
    refuseOn(socket, request, "METHOD_NOT_SUPPORTED");
  };
  server.on("upgrade", refuseUpgrade);
  server.on("connect", refuseUpgrade);
  server.on("clientError", (error: NodeJS.ErrnoException, socket: Socket) => {
    const message = clientErrors[error.code ?? ""] ?? "MALFORMED_REQUEST";
    const latest = connections.get(socket);
    if (!latest || latest.req.complete)
      return refuseOn(socket, new IncomingMessage(socket), message);
    // The body of the latest request is malformed. Nothing may follow a response that is half sent.
    if (latest.headersSent) return whenClosed(latest, () => socket.destroySoon());
    refuse(message, latest);
    // Node forgets an answered request, but the application may still wait for its body.
    socket.once("close", () => latest.req.destroy());
  });

  /** Closes the connection after its latest response. */
  const close = (socket: Socket): void => {
    const latest = connections.get(socket);
    if (!latest || latest.closed) return socket.destroySoon();
    if (!latest.headersSent) latest.shouldKeepAlive = false;
    latest.once("close", () => setImmediate(close, socket));
  };

  const runFork = Effect.runForkWith(yield* Effect.context<never>());
  return yield* Effect.acquireRelease(
    Effect.callback<number, ListenFailed>((resume) => {
      const fail = (cause: Error) => resume(Effect.fail(new ListenFailed({ host, port, cause })));
      server.once("error", fail);
      server.listen(port, host, () => {
        const bound = (server.address() as AddressInfo).port;
        // For example: no file descriptor is left for a connection. It passes.
        server.off("error", fail).on("error", ({ message }) => {
          runFork(Effect.logError(`The listener on ${host}:${bound} met an error: ${message}`));
        });
        resume(Effect.succeed(bound));
      });
    }),
    () =>
      Effect.callback<void>((resume) => {
        server.close(() => resume(Effect.void));
        isClosing = true;
        for (const socket of connections.keys()) close(socket);
      }).pipe(
        Effect.timeoutOption(grace),
        Effect.andThen(Effect.sync(() => connections.forEach((_, socket) => socket.destroy()))),
      ),
  );
});

const whenClosed = (response: ServerResponse | null, next: () => void): void =>
  response === null || response.closed ? next() : void response.once("close", next);

/**
 * Responses that end in one turn of the event loop are sent back to back at its end, so that their clients wake up once
 * and not once for each. Head and body go out in one write. (Effect sets `strictContentLength`, for which Node writes an
 * empty piece after the body. Our bodies are whole texts, whose length is right.)
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

const absoluteForm = /^https?:\/\/[^/?#]*/i;

/** The target of a request without its authority, if it has one. */
const originForm = (target: string): string =>
  absoluteForm.test(target) ? target.replace(absoluteForm, "").replace(/^(?!\/)/, "/") : target;

/** Whether Node accepts a request that RFC 9112 does not (sections 3.2, 6.1 and 6.3). */
const isMalformed = ({ headers, httpVersion, rawHeaders, url }: IncomingMessage): boolean => {
  if (/^https?:\/\/(?:[/?#]|$)/i.test(url!)) return true;
  const coding = headers["transfer-encoding"]?.toLowerCase();
  if (coding !== undefined && (coding !== "chunked" || httpVersion === "1.0")) return true;
  const hosts = rawHeaders.filter(
    (name, at) => name.length === 4 && at % 2 === 0 && name.toLowerCase() === "host",
  );
  return httpVersion === "1.1"
    ? hosts.length !== 1 || !/^[^\s,/?#@\\]*$/.test(headers.host!)
    : hosts.length > 1;
};

const clientErrors: Readonly<Record<string, GeneralMessage>> = {
  HPE_HEADER_OVERFLOW: "HEADERS_TOO_LARGE",
  ERR_HTTP_REQUEST_TIMEOUT: "REQUEST_TIMEOUT",
};
