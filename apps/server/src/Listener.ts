/**
 * A Node HTTP server whose every answer is one of the contract's, also where Node would answer by
 * itself or not at all: malformed requests, unmet expectations, upgrades, CONNECT.
 */
import * as NodeHttpServer from "@effect/platform-node/NodeHttpServer";
import type { GeneralMessage } from "@parley/http";
import { Data, Duration, Effect, Scope } from "effect";
import type { HttpServerRequest, HttpServerResponse } from "effect/http";
import { createServer, ServerResponse, type IncomingMessage } from "node:http";
import type { AddressInfo } from "node:net";
import type { Duplex } from "node:stream";
import { Connection } from "./Connection.ts";

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
  const connections = new Map<Duplex, Connection>();
  server.on("connection", (socket) => {
    connections.set(socket, new Connection(socket));
    socket.once("close", () => connections.delete(socket));
  });
  /** The connection of a request that is to be answered. */
  const begin = ({ socket }: IncomingMessage, response: ServerResponse) => {
    const connection = connections.get(socket);
    return connection?.begin(response) ? connection : undefined;
  };
  server.on("request", (request: IncomingMessage, response: ServerResponse) => {
    const connection = begin(request, response);
    if (connection === undefined) return;
    const target = originForm(request.url!);
    if (target === undefined || isMalformed(request)) {
      return connection.refuseRequest("MALFORMED_REQUEST", response);
    }
    request.url = target;
    handler(request, response);
  });
  server.on("checkExpectation", (request: IncomingMessage, response: ServerResponse) =>
    begin(request, response)?.refuseRequest("EXPECTATION_NOT_MET", response),
  );
  const refuseUpgrade = ({ method }: IncomingMessage, socket: Duplex) =>
    connections.get(socket)?.refuseUpgrade("METHOD_NOT_SUPPORTED", method);
  server.on("upgrade", refuseUpgrade);
  server.on("connect", refuseUpgrade);
  server.on("clientError", (error: ClientError, socket: Duplex) =>
    connections
      .get(socket)
      ?.refuseBytes(clientErrors[error.code ?? ""] ?? "MALFORMED_REQUEST", unreadMethod(error)),
  );

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
        for (const connection of connections.values()) connection.close();
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

/**
 * A response whose head and body go out in one write. Effect sets `strictContentLength`, for which Node
 * writes an empty piece after the body; our bodies are whole texts, and their length is always right.
 */
class WholeResponse extends ServerResponse {}
Object.defineProperty(WholeResponse.prototype, "strictContentLength", {
  get: () => false,
  set: () => {},
});

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

/** What Node tells of bytes that are no request. */
interface ClientError extends NodeJS.ErrnoException {
  /** What came last. */
  readonly rawPacket?: Buffer;
  /** How far that was understood. */
  readonly bytesParsed?: number;
}

/** The method of a request that is malformed in its head, if all of that came together. */
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
