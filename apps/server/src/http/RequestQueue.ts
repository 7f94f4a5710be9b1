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

/** How often the lateness of a timer is measured, in milliseconds. */
const interval = 20;

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
  let timerDelay = 0;
  let timerDue = performance.now() + interval;
  setInterval(() => {
    const now = performance.now();
    timerDelay = now - timerDue;
    timerDue = now + interval;
  }, interval).unref();

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
      return Math.max(timerDelay, now - timerDue, now - arrival);
    },
    arrival: () => arrival,
    waiting: () => posts.length,
  };

  return {
    loop,
    /** Begins the request at once, or behind the others if this turn has lasted long enough. */
    enter: (isPost: boolean, beginRequest: () => void): void => {
      if (!isInTurn) startTurn();
      const entry: Entry = { arrival: performance.now(), begin: beginRequest };
      const queue = isPost ? posts : reads;
      if (queue.length === 0 && entry.arrival < end) begin(entry);
      else queue.push(entry);
    },
  };
};

export type RequestQueue = ReturnType<typeof makeRequestQueue>;
