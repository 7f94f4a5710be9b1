/**
 * `@parley/http/node`: turns a web handler into a listener for `node:http`, `node:http2`, Express, Connect, Fastify or
 * Koa.
 */
import type { IncomingMessage, ServerResponse } from "node:http";
import type { Http2ServerRequest, Http2ServerResponse } from "node:http2";
import { optionsOf } from "@parley/core/ports";
import { isIP } from "node:net";
import { Readable } from "node:stream";
import { pipeline } from "node:stream/promises";
import { ReadableStream } from "node:stream/web";
import { protectiveHeaders } from "../contract/Wire.ts";
import { toRequestId } from "../serve/App.ts";
import { toGeneralBody } from "../serve/ErrorResponses.ts";
import { clientAddresses, contexts } from "../serve/WebHandler.ts";

/** A request of `node:http` or `node:http2`, with the fields that Express, Connect and their body parsers add. */
export type NodeRequest = (IncomingMessage | Http2ServerRequest) & {
  readonly originalUrl?: string;
  readonly body?: unknown;
  readonly ip?: string | undefined;
};

export type NodeResponse = ServerResponse | Http2ServerResponse;

/** What the listener needs from Fastify's request and reply. */
export interface FastifyRequest {
  readonly raw: NodeRequest;
  readonly body?: unknown;
  readonly ip?: string | undefined;
}
export interface FastifyReply {
  readonly raw: NodeResponse;
  readonly hijack: () => unknown;
}

/** Responds to a request by calling a web handler. The promise rejects only if `next` throws. */
export type NodeHandler = (
  request: NodeRequest | FastifyRequest,
  response: NodeResponse | FastifyReply,
  next?: (error: unknown) => void,
) => Promise<void>;

/** Options for {@link toNodeHandler}. */
export interface NodeHandlerOptions {
  /**
   * Returns the `context` of an ask, which the answerer and the moderator receive as it is: with Express,
   * `(request) => request.session`. It gets the request that the listener received, with everything that earlier
   * middleware added: Express's or Connect's request, `node:http`'s, or Fastify's own (`request.raw` is the plain one). It
   * is called once for each valid ask, and a promise is not awaited. If it throws, the response is 500 `INTERNAL_ERROR`.
   */
  // A request of any framework: its type would otherwise have to be repeated, or would lack `session` and `user`.
  readonly context?: ((request: any) => unknown) | undefined;
}

/**
 * Turns a web handler, such as the one from `makeWebHandler`, into a listener. The listener serves the path that the
 * client sent, even below a router's prefix. If a parser has read the body, the listener takes it from `request.body`.
 * The client's address is `request.ip`, which depends on Express's `trust proxy` or Fastify's `trustProxy`, or else the
 * connection's address. If the client disconnects, the listener aborts the signal of the handler's request and ignores
 * any later error from the handler. Other errors from the handler go to `next`. Without `next`, or after the response
 * has begun, they go to the console; the response is 500 `INTERNAL_ERROR` or, if it has begun, is cut off. Throws
 * `ArgumentInvalid` if an option is unknown.
 */
export const toNodeHandler = (
  handler: (request: Request) => Promise<Response>,
  options?: NodeHandlerOptions,
): NodeHandler => {
  const { context } = optionsOf("toNodeHandler", options, { context: false });
  return async (request, response, next) => {
    const incoming = "raw" in request ? request.raw : request;
    // An HTTP/2 response has the same methods.
    const outgoing = ("raw" in response ? response.raw : response) as ServerResponse;
    if ("hijack" in response) response.hijack();
    const disconnect = new AbortController();
    const close = () => {
      // If the client has cancelled an HTTP/2 stream, the response counts as finished, but not as ended.
      const isSent = outgoing.writableEnded && outgoing.writableFinished;
      if (!isSent && !outgoing.errored) disconnect.abort();
    };
    // An HTTP/2 response has no `destroyed`, but its stream has.
    const isGone = () =>
      outgoing.destroyed || (outgoing as NodeResponse & { stream?: Readable }).stream?.destroyed;
    // If the client disconnected while an earlier middleware ran, `close` is not emitted again.
    if (isGone()) close();
    outgoing.once("close", close);
    try {
      const webRequest = await toWebRequest(incoming, request.body, disconnect.signal);
      // A framework that trusts every proxy takes `request.ip` from a header, in which a client may send anything.
      const address = isIP(request.ip ?? "") > 0 ? request.ip : incoming.socket.remoteAddress;
      if (address !== undefined) clientAddresses.set(webRequest, address);
      if (context !== undefined) contexts.set(webRequest, () => context(request));
      const answer = await handler(webRequest);
      // In the meantime, the client may have disconnected, or a middleware may have responded.
      if (outgoing.headersSent || isGone()) return void (await answer.body?.cancel());
      outgoing.writeHead(answer.status, Object.fromEntries(answer.headers));
      if (answer.body === null) outgoing.end();
      else await pipeline(Readable.fromWeb(answer.body as never), outgoing);
    } catch (error) {
      if (disconnect.signal.aborted) return;
      if (next !== undefined && !outgoing.headersSent) return next(error);
      console.error(error);
      if (outgoing.headersSent) return void outgoing.destroy();
      const headers = {
        ...protectiveHeaders,
        "content-type": "application/json; charset=utf-8",
        "x-request-id": toRequestId(incoming.headers["x-request-id"]),
      };
      outgoing.writeHead(500, headers).end(JSON.stringify(toGeneralBody("INTERNAL_ERROR")));
    } finally {
      // Node.js reads the connection's next request only after the rest of this request's body.
      incoming.resume();
    }
  };
};

const toWebRequest = async (incoming: NodeRequest, parsedBody: unknown, signal: AbortSignal) => {
  const { method = "GET", originalUrl, readableDidRead: isRead, url = "/" } = incoming;
  // The names of HTTP/2's pseudo-headers begin with a colon.
  const fields = Object.entries(incoming.headers as Record<string, string>);
  const headers = new Headers(fields.filter(([name]) => !name.startsWith(":")));
  // Serializing the parsed body may change its length.
  if (isRead) headers.delete("content-length");
  const body = isRead ? toBody(parsedBody) : ReadableStream.from(readBytes(incoming));
  // `*` and absolute targets do not begin with a slash.
  const request = new Request(`http://localhost${(originalUrl ?? url).replace(/^(?!\/)/, "/")}`, {
    // The `Request` constructor rejects TRACE.
    method: method === "TRACE" ? "OPTIONS" : method,
    headers,
    signal,
    ...(method !== "GET" && method !== "HEAD" && { body, duplex: "half" }),
  } as RequestInit);
  if (method === "TRACE") Object.defineProperty(request, "method", { value: method });
  // Sets `bodyUsed`, which tells the application that a parser read the body and did not keep it.
  if (isRead && parsedBody === undefined) await request.arrayBuffer();
  return request;
};

/** Converts a parsed body (bytes, a string or a JSON value) back into one for a `Request`. */
const toBody = (parsedBody: unknown): BodyInit => {
  if (typeof parsedBody === "string" || parsedBody instanceof Uint8Array) {
    return parsedBody as BodyInit;
  }
  try {
    return JSON.stringify(parsedBody, replaceBigInt) ?? "";
  } catch {
    // Only form fields contain circular references. Parley rejects a form because of its content type anyway.
    return "";
  }
};

const replaceBigInt = (_: string, value: unknown): unknown =>
  typeof value === "bigint" ? Number(value) : value;

/** Reads the body. If the handler stops early, the connection stays open, so that the client gets the response. */
async function* readBytes(incoming: NodeRequest): AsyncGenerator<Uint8Array> {
  for await (const chunk of incoming.iterator({ destroyOnReturn: false })) {
    // A middleware may have called `setEncoding`, so that chunks are strings.
    yield Buffer.from(chunk, incoming.readableEncoding ?? undefined);
  }
}
