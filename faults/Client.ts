/**
 * An HTTP client of the service. It sends each request on a new connection and never retries by itself.
 */
import { request as httpRequest } from "node:http";

export interface Exchange {
  readonly url: string;
  readonly key: string;
  /** Sent with POST. A request without a body is a GET. */
  readonly body?: object | undefined;
  readonly headers?: Readonly<Record<string, string>> | undefined;
  /** The timeout in milliseconds; the default, two minutes, is longer than the service lets any request wait. */
  readonly patience?: number | undefined;
  /** Hangs up once this many events of a stream have arrived. */
  readonly cutAfter?: number | undefined;
}

export interface Answer {
  /** 0 if no response headers arrived. */
  readonly status: number;
  /** As much of the body as arrived, as text. */
  readonly text: string;
  readonly complete: boolean;
  /** Whether the client itself hung up. */
  readonly disconnected: boolean;
  readonly isStream: boolean;
  /**
   * Whether the service marks this as a replay of the response to an earlier request with the same key. `null` if the
   * service could not know yet, because the stream opened with a comment after 15 seconds without an event.
   */
  readonly replayed: boolean | null;
}

export const exchange = (what: Exchange): Promise<Answer> =>
  new Promise((resolve) => {
    let text = "";
    let disconnected = false;
    const answer = { status: 0, complete: false, isStream: false, replayed: false };
    const hangUp = () => {
      disconnected = true;
      request.destroy();
    };
    const request = httpRequest(
      what.url,
      {
        agent: false,
        method: what.body === undefined ? "GET" : "POST",
        headers: {
          "x-api-key": what.key,
          ...(what.body !== undefined && { "content-type": "application/json" }),
          ...what.headers,
        },
      },
      (response) => {
        answer.status = response.statusCode!;
        answer.isStream =
          response.headers["content-type"]?.startsWith("text/event-stream") === true;
        answer.replayed = response.headers["idempotent-replayed"] === "true";
        response.setEncoding("utf8").on("data", (chunk: string) => {
          text += chunk;
          if (what.cutAfter !== undefined && text.split("\n\n").length > what.cutAfter) hangUp();
        });
        response.on("error", () => undefined);
        response.on("end", () => (answer.complete = response.complete));
      },
    );
    const timer = setTimeout(hangUp, what.patience ?? 120_000);
    request.on("error", () => undefined);
    request.on("close", () => {
      clearTimeout(timer);
      const replayed = answer.isStream && text.startsWith(":") ? null : answer.replayed;
      resolve({ ...answer, text, disconnected, replayed });
    });
    request.end(what.body === undefined ? undefined : JSON.stringify(what.body));
  });

export interface Event {
  readonly name: string;
  readonly id: string;
  readonly data: string;
}

/** The complete events in the part of a stream that arrived. */
export const eventsOf = (text: string): ReadonlyArray<Event> =>
  text
    .split("\n\n")
    .slice(0, -1)
    .filter((block) => !block.startsWith(":"))
    .map((block) => {
      const field = (name: string) => new RegExp(`^${name}: (.*)$`, "m").exec(block)?.[1] ?? "";
      return { name: field("event"), id: field("id"), data: field("data") };
    });
