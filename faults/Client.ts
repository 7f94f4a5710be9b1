/**
 * HTTP as a client of the service speaks it, each request on a connection of its own. Nothing is repeated
 * automatically.
 */
import { request as httpRequest } from "node:http";

export interface Exchange {
  readonly url: string;
  readonly key: string;
  /** Sent by POST; without a body the request is a GET. */
  readonly body?: object | undefined;
  readonly headers?: Readonly<Record<string, string>> | undefined;
  /** Hangs up after this many milliseconds; by default two minutes, longer than the service lets any request wait. */
  readonly patience?: number | undefined;
  /** Hangs up once this many events of a stream have arrived. */
  readonly cutAfter?: number | undefined;
}

export interface Answer {
  /** 0: no head of a response arrived. */
  readonly status: number;
  /** The body's bytes, as text, as far as they arrived. */
  readonly text: string;
  readonly complete: boolean;
  /** Whether the client itself hung up. */
  readonly disconnected: boolean;
  readonly isStream: boolean;
  /**
   * Whether the service says that it repeats the response to an earlier request with the same key. `null`: the service
   * could not know yet, because the stream opened with a comment after 15 seconds without an event.
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

/** The complete events in what arrived of a stream. */
export const eventsOf = (text: string): ReadonlyArray<Event> =>
  text
    .split("\n\n")
    .slice(0, -1)
    .filter((block) => !block.startsWith(":"))
    .map((block) => {
      const field = (name: string) => new RegExp(`^${name}: (.*)$`, "m").exec(block)?.[1] ?? "";
      return { name: field("event"), id: field("id"), data: field("data") };
    });
