/**
 * The requests that wait for the event loop. In one turn, Node reads from every connection that has something to read,
 * but accepts a single new one. If each request began as soon as it is read, a turn would take as long as all of them
 * together, and a new client would wait for many such turns. So the requests of a turn begin within a few milliseconds,
 * and the others in the turns that follow: first those that only read, which are quick, then the POSTs, each kind in
 * order of arrival.
 */
import type { EventLoop } from "@parley/http";

/** How long requests may begin in one turn, in milliseconds. */
const slice = 5;

/** How often a timer measures the turns, in milliseconds. In a longer turn it is due once. */
const interval = 5;

/** After how long without a request the timer ends, in milliseconds: it must not wake an idle machine. */
const idleAfter = 1_000;

interface Entry {
  readonly arrival: number;
  readonly begin: () => void;
}

/** Makes the queue of a process: its listeners share one. */
export const makeRequestQueue = () => {
  const reads: Array<Entry> = [];
  const posts: Array<Entry> = [];
  let isInTurn = false;
  /** When no further request begins in this turn. */
  let end = 0;
  /** When the request that begins now was read. */
  let arrival = 0;
  let timer: NodeJS.Timeout | null = null;
  let lastTurn = 0;
  let turnStart = 0;

  const measure = (): void => {
    const now = performance.now();
    lastTurn = now - turnStart;
    turnStart = now;
    if (now - arrival < idleAfter) return;
    clearInterval(timer!);
    timer = null;
  };
  const begin = (entry: Entry): void => {
    arrival = entry.arrival;
    entry.begin();
  };
  const startTurn = (): void => {
    isInTurn = true;
    end = performance.now() + slice;
    setImmediate(endTurn);
  };
  const endTurn = (): void => {
    isInTurn = false;
    if (reads.length + posts.length === 0) return;
    startTurn();
    while (reads.length > 0 && performance.now() < end) begin(reads.shift()!);
    // Reads alone must not keep the POSTs waiting.
    if (posts.length > 0) {
      do begin(posts.shift()!);
      while (posts.length > 0 && performance.now() < end);
    }
  };
  const loop: EventLoop = {
    delay: () => {
      const now = performance.now();
      return Math.max(lastTurn, now - turnStart, now - arrival) - interval;
    },
    arrival: () => arrival,
    waiting: () => posts.length,
  };

  return {
    loop,
    /** Begins the request at once, or behind the others if this turn has lasted long enough. */
    enter: (isPost: boolean, beginRequest: () => void): void => {
      const entry: Entry = { arrival: performance.now(), begin: beginRequest };
      if (timer === null) {
        [turnStart, lastTurn] = [entry.arrival, 0];
        timer = setInterval(measure, interval).unref();
      }
      if (!isInTurn) startTurn();
      const queue = isPost ? posts : reads;
      if (queue.length === 0 && entry.arrival < end) begin(entry);
      else queue.push(entry);
    },
  };
};

export type RequestQueue = ReturnType<typeof makeRequestQueue>;
