/**
 * The requests that wait for the event loop. In one iteration, Node reads from every connection with unread data, but
 * accepts a single new connection. If each request started as soon as it is read, an iteration would take as long as all
 * of them together, and a new client would wait for many such iterations. So an iteration starts requests for a few
 * milliseconds, and for even less while connections arrive; the others start in the following iterations, in order of
 * arrival. Accepted asks come last: they cost more than the rest.
 */
import type { EventLoop } from "@parley/http";
import { Effect } from "effect";

/** How long one iteration may start requests, in milliseconds. */
const slice = 5;

/** The same after a new connection, because others may wait to be accepted. */
const acceptingSlice = 1;

/** How often a timer measures the iterations, in milliseconds. In a longer iteration it fires once. */
const interval = 5;

/** The timer stops after this long without a request, in milliseconds: it must not wake an idle machine. */
const idleAfter = 1_000;

/** Creates the queue of a process, which its listeners share. */
export const makeRequestQueue = () => {
  const requests: Array<{ readonly arrival: number; readonly begin: () => void }> = [];
  const asks: Array<{ readonly waitingSince: number; readonly begin: () => void }> = [];
  let isIterating = false;
  /** Whether a connection was accepted since the last iteration started. */
  let hasNewConnection = false;
  /** When this iteration started, which counts as the arrival of its requests: a slow machine takes long to read a burst. */
  let start = 0;
  /** When this iteration stops starting requests. */
  let end = 0;
  let latestRequestAt = 0;
  let arrival = 0;
  /** How long the latest request waited before it started. */
  let wait = 0;
  let timer: NodeJS.Timeout | null = null;
  let iterationStart = 0;
  let lastIteration = 0;

  const measure = (): void => {
    const now = performance.now();
    lastIteration = now - iterationStart;
    iterationStart = now;
    if (now - latestRequestAt < idleAfter) return;
    clearInterval(timer!);
    timer = null;
  };
  const startIteration = (): void => {
    isIterating = true;
    start = performance.now();
    end = start + (hasNewConnection ? acceptingSlice : slice);
    hasNewConnection = false;
    setImmediate(endIteration);
  };
  const endIteration = (): void => {
    isIterating = false;
    if (requests.length + asks.length === 0) return;
    startIteration();
    while (requests.length > 0 && performance.now() < end) {
      const request = requests.shift()!;
      arrival = request.arrival;
      wait = performance.now() - arrival;
      request.begin();
    }
    // The other requests must not keep the asks waiting forever.
    if (asks.length > 0) {
      do asks.shift()!.begin();
      while (asks.length > 0 && performance.now() < end);
    }
  };

  const loop: EventLoop = {
    arrival: () => arrival,
    delay: () => {
      const now = performance.now();
      return (
        Math.max(wait, lastIteration, now - iterationStart, now - (asks[0]?.waitingSince ?? now)) -
        interval
      );
    },
    waiting: () => asks.length,
    awaitSlot: Effect.callback<void>((resume) => {
      const waitingSince = performance.now();
      // The look-up of the key may have taken many iterations.
      if (!isIterating) startIteration();
      if (asks.length === 0 && waitingSince < end) return resume(Effect.void);
      const ask = { waitingSince, begin: () => resume(Effect.void) };
      asks.push(ask);
      return Effect.sync(() => {
        if (asks.includes(ask)) asks.splice(asks.indexOf(ask), 1);
      });
    }),
  };
  return {
    loop,
    /** To be called for each new connection. */
    noteConnection: (): void => void (hasNewConnection = true),
    /** Starts a request at once, or after the waiting ones if this iteration has lasted long enough. */
    enter: (begin: () => void): void => {
      latestRequestAt = performance.now();
      if (timer === null) {
        [iterationStart, lastIteration] = [latestRequestAt, 0];
        timer = setInterval(measure, interval).unref();
      }
      if (!isIterating) startIteration();
      if (requests.length === 0 && latestRequestAt < end) {
        arrival = start;
        wait = latestRequestAt - start;
        begin();
      } else requests.push({ arrival: start, begin });
    },
  };
};

export type RequestQueue = ReturnType<typeof makeRequestQueue>;
