/**
 * `@parley/http/node`: a web handler as a listener of `node:http`, and as a handler for Express, Connect, Fastify and Koa.
 */
import type { IncomingMessage, ServerResponse } from "node:http";
import { isIP } from "node:net";
import { Readable } from "node:stream";
import { pipeline } from "node:stream/promises";
import { ReadableStream } from "node:stream/web";
import { protectiveHeaders } from "../contract/Wire.ts";
import { toRequestId } from "../serve/App.ts";
import { toGeneralBody } from "../serve/ErrorResponses.ts";
import { clientAddresses } from "../serve/WebHandler.ts";

/** A request of `node:http`, with what Express, Connect and their body parsers add to it. */
export interface NodeRequest extends IncomingMessage {
  readonly originalUrl?: string;
  readonly body?: unknown;
  readonly ip?: string | undefined;
}

/** What the listener needs from Fastify's request and reply. */
export interface FastifyRequest {
  readonly raw: NodeRequest;
  readonly body?: unknown;
  readonly ip?: string | undefined;
}
export interface FastifyReply {
  readonly raw: ServerResponse;
  readonly hijack: () => unknown;
}

/** Responds with a web handler. The promise rejects only if `next` throws. */
export type NodeHandler = (
  request: NodeRequest | FastifyRequest,
  response: ServerResponse | FastifyReply,
  next?: (error: unknown) => void,
) => Promise<void>;

/**
 * Turns a web handler, such as that of `makeWebHandler`, into a listener. It serves the path that the client sent, even
 * below a router's prefix. If a parser has read the body, the listener takes it from `request.body`. The client's
 * address is `request.ip`, which depends on Express's `trust proxy` or Fastify's `trustProxy`, or else that of the
 * connection. If the client disconnects, the listener aborts the signal of the handler's request, and ignores a later
 * error of the handler. Any other error of the handler goes to `next`. Without `next`, or after the response has begun,
 * it goes to the console; the response is 500 `INTERNAL_ERROR` or, if it has begun, breaks off.
 */
export const toNodeHandler =
  (handler: (request: Request) => Promise<Response>): NodeHandler =>
  async (request, response, next) => {
    const incoming = "raw" in request ? request.raw : request;
    const outgoing = "raw" in response ? response.raw : response;
    if ("hijack" in response) response.hijack();
    const disconnect = new AbortController();
    const close = () => {
      // An HTTP/2 stream that the client has cancelled is finished, but not ended.
      const isSent = outgoing.writableEnded && outgoing.writableFinished;
      if (!isSent && !outgoing.errored) disconnect.abort();
    };
    // If the client disconnected while an earlier middleware ran, `close` is not emitted again.
    if (outgoing.destroyed) close();
    outgoing.once("close", close);
    try {
      const webRequest = await toWebRequest(incoming, request.body, disconnect.signal);
      // A framework that trusts every proxy takes `request.ip` from a header, in which a client may send any text.
      const address = isIP(request.ip ?? "") > 0 ? request.ip : incoming.socket.remoteAddress;
      if (address !== undefined) clientAddresses.set(webRequest, address);
      const answer = await handler(webRequest);
      // The client has disconnected, or a middleware has responded, in the meantime.
      if (outgoing.headersSent || outgoing.destroyed) return void (await answer.body?.cancel());
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

const toWebRequest = async (incoming: NodeRequest, parsedBody: unknown, signal: AbortSignal) => {
  const { method = "GET", originalUrl, readableDidRead: isRead, url = "/" } = incoming;
  // The names of HTTP/2's pseudo-headers begin with a colon.
  const fields = Object.entries(incoming.headers as Record<string, string>);
  const headers = new Headers(fields.filter(([name]) => !name.startsWith(":")));
  // A parsed body may be serialized with a different length.
  if (isRead) headers.delete("content-length");
  const body = isRead ? toBody(parsedBody) : ReadableStream.from(readBytes(incoming));
  // `*` and absolute targets do not begin with a slash.
  const request = new Request(`http://localhost${(originalUrl ?? url).replace(/^(?!\/)/, "/")}`, {
    // The constructor of `Request` refuses TRACE.
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

/** The body as a parser left it: bytes, text or a JSON value. */
const toBody = (parsedBody: unknown): BodyInit => {
  if (typeof parsedBody === "string" || parsedBody instanceof Uint8Array) {
    return parsedBody as BodyInit;
  }
  try {
    return JSON.stringify(parsedBody, replaceBigInt) ?? "";
  } catch {
    // Only form fields contain circular references. Parley refuses a form by its type, whatever it contains.
    return "";
  }
};

const replaceBigInt = (_: string, value: unknown): unknown =>
  typeof value === "bigint" ? Number(value) : value;

/** Leaves the connection open when the handler stops reading early: the client still gets the response. */
async function* readBytes(incoming: IncomingMessage): AsyncGenerator<Uint8Array> {
  for await (const chunk of incoming.iterator({ destroyOnReturn: false })) {
    // A middleware may have set an encoding.
    yield Buffer.from(chunk, incoming.readableEncoding ?? undefined);
  }
}
