/**
 * A client of streamed answers, with a connection of its own.
 */
import { request as httpRequest, type IncomingMessage } from "node:http";

export interface Event {
  readonly name: string;
  readonly id: string;
  /** The data's bytes, as text. */
  readonly data: string;
  /** When it came, by `performance.now()`. */
  readonly at: number;
}

export interface EventClient {
  /** Settles once the response's head is there; `null` when none came. */
  readonly response: Promise<IncomingMessage | null>;
  /** Every event so far. */
  readonly events: ReadonlyArray<Event>;
  /** What the deltas so far say together. */
  readonly text: () => string;
  /** Settles with the connection's end. */
  readonly ended: Promise<void>;
  /** Waits until the deltas say at least this many code units. */
  readonly said: (units: number) => Promise<void>;
  /** Destroys the connection. */
  readonly cut: () => void;
}

/** Asks for a stream. With `reads: false` nothing is read of it. */
export const askForStream = (
  url: string,
  apiKey: string,
  body: object,
  headers: Readonly<Record<string, string>> = {},
  reads = true,
): EventClient => {
  const events: Array<Event> = [];
  const response = Promise.withResolvers<IncomingMessage | null>();
  const ended = Promise.withResolvers<void>();
  let wakers: Array<() => void> = [];
  let buffered = "";
  const request = httpRequest(
    url,
    {
      agent: false,
      method: "POST",
      headers: {
        accept: "text/event-stream",
        "content-type": "application/json",
        "x-api-key": apiKey,
        ...headers,
      },
    },
    (incoming) => {
      response.resolve(incoming);
      incoming.on("error", () => undefined);
      if (!reads) return;
      incoming.setEncoding("utf8").on("data", (chunk: string) => {
        const at = performance.now();
        const blocks = (buffered + chunk).split("\n\n");
        buffered = blocks.pop()!;
        for (const block of blocks) {
          if (block.startsWith(":")) continue;
          const lines = block.split("\n");
          const field = (name: string) =>
            lines.find((line) => line.startsWith(`${name}: `))?.slice(name.length + 2) ?? "";
          events.push({ name: field("event"), id: field("id"), data: field("data"), at });
        }
        for (const wake of wakers.splice(0)) wake();
      });
    },
  );
  request.on("error", () => undefined);
  request.on("close", () => {
    response.resolve(null);
    ended.resolve();
    for (const wake of wakers.splice(0)) wake();
  });
  request.end(JSON.stringify(body));
  const text = () =>
    events
      .filter(({ name }) => name === "delta")
      .map(({ data }) => (JSON.parse(data) as { readonly text: string }).text)
      .join("");
  return {
    response: response.promise,
    events,
    text,
    ended: ended.promise,
    said: async (units) => {
      while (text().length < units) {
        if (request.closed) throw new Error(`The stream ended after: ${text()}`);
        await new Promise<void>((resolve) => wakers.push(resolve));
      }
    },
    cut: () => request.destroy(),
  };
};
