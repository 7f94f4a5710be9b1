/**
 * A Node HTTP server that serves an Effect application until its scope closes.
 */
import * as NodeHttpServer from "@effect/platform-node/NodeHttpServer";
import { Data, type Duration, Effect, Scope } from "effect";
import type { HttpServerRequest, HttpServerResponse } from "effect/http";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { Lifecycle } from "../Lifecycle.ts";
import { type ConnectionOptions, serveRequests } from "./Connections.ts";
import { allowHalfOpen, BatchedResponse } from "./NodeInternals.ts";
import { RequestQueue } from "./RequestQueue.ts";

/** How many connections may wait to be accepted, if the system allows that many (`net.core.somaxconn` on Linux). */
const backlog = 4096;

export class ListenFailed extends Data.TaggedError("ListenFailed")<{
  readonly message: string;
}> {}

export interface ListenOptions extends Omit<ConnectionOptions, "queue" | "isStopping"> {
  readonly host: string;
  /** The port to listen on; 0 for any free port. */
  readonly port: number;
  /** The name of the setting that determines the port, for the error if the port is in use. */
  readonly setting?: string;
  /** How long requests in flight may take once the listener starts to close. */
  readonly grace: Duration.Duration;
}

/**
 * Serves `app` until the scope closes, and refuses connections from then on. Returns the origin, such as
 * `http://127.0.0.1:3000`.
 */
export const listen = Effect.fnUntraced(function* (
  app: Effect.Effect<
    HttpServerResponse.HttpServerResponse,
    never,
    HttpServerRequest.HttpServerRequest | Scope.Scope
  >,
  { grace, host, port, setting = "the port", ...options }: ListenOptions,
) {
  const lifecycle = yield* Lifecycle;
  const queue = yield* RequestQueue;
  const requests = yield* Scope.make("parallel");
  const handle = yield* NodeHttpServer.makeHandler(app, { scope: requests });
  const server = createServer({
    ServerResponse: BatchedResponse,
    requireHostHeader: false,
    // A body that is larger is left in the system's buffers until the application reads it.
    highWaterMark: 16 * 1024,
    // The cookies of a site with subdomains may exceed the default of 16 KiB.
    maxHeaderSize: 32_768,
    requestTimeout: 30_000,
    headersTimeout: 10_000,
    keepAliveTimeout: 65_000,
    connectionsCheckingInterval: 5_000,
  });
  // `server.close` calls this method, which would cut off responses that have ended but are still being sent.
  server.closeIdleConnections = () => {};
  allowHalfOpen(server);
  const connections = serveRequests(server, handle, {
    ...options,
    isStopping: () => lifecycle.phase === "stopping",
    queue,
  });
  const toOrigin = (port: number) => `http://${host.includes(":") ? `[${host}]` : host}:${port}`;
  const runFork = Effect.runForkWith(yield* Effect.context<never>());
  return yield* Effect.acquireRelease(
    Effect.callback<string, ListenFailed>((resume) => {
      const fail = ({ code, message }: NodeJS.ErrnoException) => {
        const other = port < 65_000 ? port + 100 : port - 100;
        const inUse = `the port is in use; set ${setting} to another, such as ${other}`;
        const reason = code === "EADDRINUSE" ? inUse : message;
        const text = `Cannot listen on ${toOrigin(port)}: ${reason}.`;
        resume(new ListenFailed({ message: text }));
      };
      server.once("error", fail);
      server.listen({ port, host, backlog }, () => {
        const origin = toOrigin((server.address() as AddressInfo).port);
        // Errors from here on, such as running out of file descriptors, are not fatal: later connections may succeed.
        server.off("error", fail).on("error", ({ message }) => {
          runFork(Effect.logError(`Listener error on ${origin}: ${message}`));
        });
        resume(Effect.succeed(origin));
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
