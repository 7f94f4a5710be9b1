/**
 * A Node HTTP server whose every response has a shape of the contract, also where Node itself would answer or hang up:
 * malformed requests, unmet expectations and CONNECT.
 */
import * as NodeHttpServer from "@effect/platform-node/NodeHttpServer";
import type { GeneralMessage, RequestLog } from "@parley/http";
import { Data, Duration, Effect, Scope } from "effect";
import type { HttpServerRequest, HttpServerResponse } from "effect/http";
import { createServer, IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo, Socket } from "node:net";
import { Connections, whenClosed } from "./Connections.ts";
import { BatchedResponse } from "./BatchedResponse.ts";
import { checkHead, toOriginForm } from "./RequestHead.ts";

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
  /** Whether it will close soon, so that each response is the last of its connection. */
  readonly isStopping: () => boolean;
  /** Called for each request that the listener refuses in the application's place. */
  readonly refused?: RequestLog["refuse"];
}

/** Serves `app` until the scope closes, and refuses connections from then on. Returns the port. */
export const listen = Effect.fnUntraced(function* <R>(
  app: Effect.Effect<HttpServerResponse.HttpServerResponse, never, R>,
  { grace, host, isStopping, port, refused }: ListenOptions,
) {
  const requests = yield* Scope.make("parallel");
  const handle = yield* NodeHttpServer.makeHandler(
    app as Effect.Effect<
      HttpServerResponse.HttpServerResponse,
      never,
      Exclude<R, HttpServerRequest.HttpServerRequest>
    >,
    { scope: requests },
  );
  const server = createServer({
    ServerResponse: BatchedResponse,
    requireHostHeader: false,
    requestTimeout: 30_000,
    headersTimeout: 10_000,
    keepAliveTimeout: 65_000,
    connectionsCheckingInterval: 5_000,
    maxHeaderSize: 16 * 1024,
  });
  const connections = new Connections(isStopping, refused);

  server.on("connection", (socket: Socket) => connections.add(socket));
  server.on("request", (request: IncomingMessage, response: ServerResponse) => {
    if (!connections.begin(response)) return;
    const refusal = checkHead(request);
    if (refusal !== null) return connections.refuse(refusal, response);
    request.url = toOriginForm(request.url!);
    handle(request, response);
  });
  server.on("checkExpectation", (_: IncomingMessage, response: ServerResponse) => {
    if (connections.begin(response)) connections.refuse("EXPECTATION_NOT_MET", response);
  });
  server.on("connect", (request: IncomingMessage, socket: Socket) => {
    // Node has detached itself from the connection, also from earlier responses that wait for it to drain.
    socket
      .on("drain", () => (socket as { _httpMessage?: ServerResponse })._httpMessage?.emit("drain"))
      .on("end", () => socket.destroy())
      .resume();
    connections.refuseNext(socket, request, "METHOD_NOT_SUPPORTED");
  });
  server.on("clientError", (error: NodeJS.ErrnoException, socket: Socket) => {
    const message = clientErrors[error.code ?? ""] ?? "MALFORMED_REQUEST";
    const latest = connections.latest(socket);
    if (!latest || latest.req.complete)
      return connections.refuseNext(socket, new IncomingMessage(socket), message);
    // The body of the latest request is malformed. Nothing may follow a response that is half sent.
    if (latest.headersSent) return whenClosed(latest, () => socket.destroySoon());
    connections.refuse(message, latest);
    // Node forgets an answered request, but the application may still wait for its body.
    socket.once("close", () => latest.req.destroy());
  });

  const runFork = Effect.runForkWith(yield* Effect.context<never>());
  return yield* Effect.acquireRelease(
    Effect.callback<number, ListenFailed>((resume) => {
      const fail = (cause: Error) => resume(Effect.fail(new ListenFailed({ host, port, cause })));
      server.once("error", fail);
      server.listen(port, host, () => {
        const bound = (server.address() as AddressInfo).port;
        // For example: no file descriptor is left for a connection. Later connections may succeed.
        server.off("error", fail).on("error", ({ message }) => {
          runFork(Effect.logError(`The listener on ${host}:${bound} met an error: ${message}`));
        });
        resume(Effect.succeed(bound));
      });
    }),
    (_, exit) =>
      Effect.callback<void>((resume) => {
        server.close(() => resume(Effect.void));
        connections.close();
      }).pipe(
        Effect.timeoutOption(grace),
        Effect.andThen(Effect.sync(() => connections.destroy())),
        Effect.andThen(Scope.close(requests, exit)),
      ),
  );
});

const clientErrors: Readonly<Record<string, GeneralMessage>> = {
  HPE_HEADER_OVERFLOW: "HEADERS_TOO_LARGE",
  ERR_HTTP_REQUEST_TIMEOUT: "REQUEST_TIMEOUT",
};
