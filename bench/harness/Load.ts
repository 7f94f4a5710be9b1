/**
 * One measurement: the requests that the generator process sends to a server, and what it counts meanwhile.
 */
import { fork } from "node:child_process";
import { once } from "node:events";
import { fileURLToPath } from "node:url";
import { own } from "./Children.ts";

/** The status and body that a response must have. */
export interface Expected {
  readonly status: number;
  readonly body: string;
  /**
   * What must be the same: all bytes; everything but digits, which differ in new ids and times; or, in a stream,
   * everything but digits in the last event.
   */
  readonly match: "bytes" | "all but digits" | "last event";
}

export interface Load {
  readonly port: number;
  /**
   * Complete HTTP/1.1 requests. `{key}` in a request becomes a new UUID each time. The first of n connections sends the
   * 1st request, the (n+1)th and so on, and wraps around at the end of the list.
   */
  readonly requests: ReadonlyArray<string>;
  readonly expected: Expected;
  /** Each sends its next request when the response to its last one is complete. */
  readonly connections: number;
  /**
   * The first requests that count are spread over this many milliseconds; 0 by default. Streams that
   * started together would be served together, which costs less.
   */
  readonly staggerMillis?: number;
  /** How long requests that do not count are sent first, while connections open, caches fill and code is compiled. */
  readonly leadMillis: number;
  /** How long requests that count are sent. The last responses are awaited. */
  readonly millis: number;
  /** Processes whose CPU time counts, with their children. */
  readonly pids: { readonly server: number; readonly postgres: number };
}

export interface Measurement {
  readonly perSecond: number;
  readonly p50Millis: number;
  readonly p99Millis: number;
  /** CPU time of the server and of PostgreSQL per response, in microseconds. */
  readonly serverMicros: number;
  readonly postgresMicros: number;
  /** Share of one core that the generator itself used. */
  readonly generatorBusy: number;
}

export type Reply = Measurement | { readonly failure: string };

type Measure = (load: Load) => Promise<Measurement>;

/** Starts a generator, which makes one measurement at a time. */
export const startGenerator = (): Measure => {
  const child = fork(fileURLToPath(new URL("Generator.ts", import.meta.url)), { detached: true });
  own("The generator", child, "SIGTERM");
  return async (load) => {
    child.send(load);
    const [reply] = (await once(child, "message")) as [Reply];
    if ("failure" in reply) throw new Error(reply.failure);
    return reply;
  };
};
