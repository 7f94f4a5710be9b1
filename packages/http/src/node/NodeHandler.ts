/**
 * `@parley/http/node`: a web handler as a listener of `node:http`, and as a handler of Express, Connect and Fastify.
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

/** What the listener needs of Fastify's request and reply. */
export interface FastifyRequest {
  readonly raw: NodeRequest;
  readonly body?: unknown;
  readonly ip?: string | undefined;
}
export interface FastifyReply {
  readonly raw: ServerResponse;
  readonly hijack: () => unknown;
}

/** Responds with a web handler. The promise never rejects. */
export type NodeHandler = (
  request: NodeRequest | FastifyRequest,
  response: ServerResponse | FastifyReply,
  next?: (error: unknown) => void,
) => Promise<void>;

/**
 * Turns a web handler, such as that of `makeWebHandler`, into a listener. It serves the path that the client sent, even
 * below a router's prefix, and takes from `request.body` a body that a parser has read. The client's address is
 * `request.ip`, which Express sets by `trust proxy` and Fastify by `trustProxy`, or else that of the connection. If the client
 * disconnects, it aborts the signal of the handler's request. An error of the handler goes to `next`; without `next`,
 * it goes to the console, and the response is 500 `INTERNAL_ERROR`.
 */
export const toNodeHandler =
  (handler: (request: Request) => Promise<Response>): NodeHandler =>
  async (request, response, next) => {
    const incoming = "raw" in request ? request.raw : request;
    const outgoing = "raw" in response ? response.raw : response;
    if ("hijack" in response) response.hijack();
    const disconnect = new AbortController();
    const close = () => {
      if (!outgoing.writableFinished && !outgoing.errored) disconnect.abort();
    };
    // The response may have closed while a middleware was waiting.
    if (outgoing.destroyed) close();
    outgoing.once("close", close);
    try {
      const webRequest = await toWebRequest(incoming, request.body, disconnect.signal);
      // A framework that trusts every proxy takes `request.ip` from a header that the client sent.
      const address = isIP(request.ip ?? "") > 0 ? request.ip : incoming.socket.remoteAddress;
      if (address !== undefined) clientAddresses.set(webRequest, address);
      const answer = await handler(webRequest);
      // The client disconnected, or a middleware has responded in the meantime.
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
      // Node.js reads the next request of the connection after the rest of this one's body.
      incoming.resume();
    }
  };

const toWebRequest = async (incoming: NodeRequest, parsedBody: unknown, signal: AbortSignal) => {
  const { method = "GET", originalUrl, readableDidRead: isRead, url = "/" } = incoming;
  // The names of HTTP/2's pseudo-headers begin with a colon.
  const fields = Object.entries(incoming.headers as Record<string, string>);
  const headers = new Headers(fields.filter(([name]) => !name.startsWith(":")));
  // What a parser has read may have another length now.
  if (isRead) headers.delete("content-length");
  const body = isRead ? toBody(parsedBody) : ReadableStream.from(readBytes(incoming));
  // `*` and absolute targets do not begin with a slash.
  const request = new Request(`http://localhost${(originalUrl ?? url).replace(/^(?!\/)/, "/")}`, {
    // A web request refuses TRACE.
    method: method === "TRACE" ? "OPTIONS" : method,
    headers,
    signal,
    ...(method !== "GET" && method !== "HEAD" && { body, duplex: "half" }),
  } as RequestInit);
  if (method === "TRACE") Object.defineProperty(request, "method", { value: method });
  // `bodyUsed` then says that the body is unavailable.
  if (isRead && parsedBody === undefined) await request.arrayBuffer();
  return request;
};

/** The body that a parser has left: bytes, text, or a value of JSON. */
const toBody = (parsedBody: unknown): BodyInit =>
  typeof parsedBody === "string" || parsedBody instanceof Uint8Array
    ? (parsedBody as BodyInit)
    : (JSON.stringify(parsedBody) ?? "");

/** Leaves the connection open when the handler reads no further: the client still gets the response. */
async function* readBytes(incoming: IncomingMessage): AsyncGenerator<Uint8Array> {
  for await (const chunk of incoming.iterator({ destroyOnReturn: false })) {
    // A middleware may have set an encoding.
    yield Buffer.from(chunk, incoming.readableEncoding ?? undefined);
  }
}
