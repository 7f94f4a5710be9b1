/**
 * HTTP as a client of the service speaks it. It never sends a request twice by itself.
 */
import { Agent, request as httpRequest } from "node:http";

export interface Answer {
  readonly status: number;
  /** The body's bytes, as text. */
  readonly text: string;
  /** Whether the service says that an earlier request with the same key made it. */
  readonly replayed: boolean;
}

export interface Client {
  /** `null` when no complete answer came. */
  readonly post: (url: string, body: object, idempotencyKey?: string) => Promise<Answer | null>;
  readonly get: (url: string) => Promise<Answer | null>;
  /** Sends a POST and hangs up after the given time. */
  readonly postAndHangUp: (url: string, body: object, millis: number) => Promise<void>;
  readonly close: () => void;
}

/** Longer than the service lets any request wait. */
const timeout = 120_000;

/** A client with connections of its own, kept alive. */
export const makeClient = (apiKey: string): Client => {
  const agent = new Agent({ keepAlive: true });

  const send = (
    method: "GET" | "POST",
    url: string,
    body: object | null,
    headers: Readonly<Record<string, string>>,
    millis: number,
  ): Promise<Answer | null> =>
    new Promise((resolve) => {
      const request = httpRequest(
        url,
        {
          agent,
          method,
          headers: {
            "x-api-key": apiKey,
            ...(body === null ? {} : { "content-type": "application/json; charset=utf-8" }),
            ...headers,
          },
        },
        (response) => {
          const chunks: Array<Buffer> = [];
          response.on("data", (chunk: Buffer) => chunks.push(chunk));
          response.on("error", () => resolve(null));
          response.on("close", () => resolve(null));
          response.on("end", () => {
            if (!response.complete) return;
            resolve({
              status: response.statusCode!,
              text: Buffer.concat(chunks).toString(),
              replayed: response.headers["idempotent-replayed"] === "true",
            });
          });
        },
      );
      const timer = setTimeout(() => request.destroy(), millis);
      request.on("close", () => {
        clearTimeout(timer);
        resolve(null);
      });
      request.on("error", () => resolve(null));
      request.end(body === null ? undefined : JSON.stringify(body));
    });

  return {
    post: (url, body, idempotencyKey) =>
      send(
        "POST",
        url,
        body,
        idempotencyKey === undefined ? {} : { "idempotency-key": idempotencyKey },
        timeout,
      ),
    get: (url) => send("GET", url, null, {}, timeout),
    postAndHangUp: async (url, body, millis) => {
      await send("POST", url, body, {}, millis);
    },
    close: () => agent.destroy(),
  };
};
