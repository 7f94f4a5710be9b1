/**
 * One measurement: a request, sent over and over by the generator's process.
 */
import { fork } from "node:child_process";
import { once } from "node:events";
import { fileURLToPath } from "node:url";
import { own } from "./Children.ts";

export interface Load {
  readonly port: number;
  /** One whole HTTP/1.1 request. */
  readonly request: string;
  /** The status and body that every response must have. */
  readonly expected: {
    readonly status: number;
    readonly body: string;
    /** The same bytes, or the same but for the digits, as with new ids and times. */
    readonly match: "bytes" | "all but digits";
  };
  readonly connections: number;
  /** Under load, but not counted: connections open, caches fill, code is compiled. */
  readonly leadMillis: number;
  readonly millis: number;
}

export interface Measured {
  readonly requestsPerSecond: number;
  readonly p50Millis: number;
  readonly p99Millis: number;
  /** Share of one core that the generator itself used. */
  readonly generatorBusy: number;
}

export type Reply = Measured | { readonly failure: string };

export type Measure = (load: Load) => Promise<Measured>;

/** Starts the generator. A measurement fails on the first answer that is not the expected one. */
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
