/**
 * The queue of work for the event loop. In one iteration, Node reads from every connection with unread data, but
 * accepts only one new connection. If each request started as soon as it was read, an iteration would take as long as
 * all its requests together, and a new client would wait for many such iterations. So an iteration starts requests for
 * a few milliseconds, or even less while connections arrive; the remaining requests start in later iterations, in order
 * of arrival. Accepted asks and models' answers come last, and are limited by number rather than by time: each costs a
 * third of a millisecond, but only later in the iteration, so the clock does not yet show the cost when they start.
 */
import type { EventLoop } from "@parley/http";
import { Context, Effect } from "effect";

/** How long an iteration may spend starting requests, in milliseconds. */
const slice = 5;

/** The shorter slice after a new connection, because more connections may be waiting to be accepted. */
const acceptingSlice = 1;

/** How many asks and models' answers may start in one iteration. Together, they take about as long as `slice`. */
const slots = 16;

/** How often a timer measures the iterations, in milliseconds. In a longer iteration, the timer fires only once. */
const interval = 5;

/** How long after the latest request the timer stops, in milliseconds, so that it does not wake an idle machine. */
const idleAfter = 1_000;

/** Creates the queue for an event loop. */
export const makeRequestQueue = () => {
  const requests: Array<{ readonly arrival: number; readonly begin: () => void }> = [];
  /** The asks and models' answers that are waiting for a slot. */
  const slotQueue: Array<() => void> = [];
  let waitingAsks = 0;
  let isIterating = false;
  /** Whether a connection has been accepted since the last iteration started. */
  let hasNewConnection = false;
  /**
   * When this iteration started. This counts as the arrival time of its requests, because a slow machine takes a long
   * time to read a burst.
   */
  let start = 0;
  /** When this iteration stops starting requests. */
  let end = 0;
  let freeSlots = slots;
  let latestRequestAt = 0;
  let arrival = 0;
  /** How long the latest request waited before it started. */
  let wait = 0;
  let timer: NodeJS.Timeout | null = null;
  /** When the timer last fired, and how long that was after the previous firing. */
  let measuredAt = 0;
  let lastInterval = 0;

  const measure = (): void => {
    const now = performance.now();
    lastInterval = now - measuredAt;
    measuredAt = now;
    if (now - latestRequestAt < idleAfter) return;
    clearInterval(timer!);
    timer = null;
  };
  const startIteration = (): void => {
    isIterating = true;
    start = performance.now();
    end = start + (hasNewConnection ? acceptingSlice : slice);
    hasNewConnection = false;
    freeSlots = slots;
    setImmediate(runNextIteration);
  };
  /** Ends the iteration. If work is waiting, starts the next iteration with that work. */
  const runNextIteration = (): void => {
    isIterating = false;
    if (requests.length + slotQueue.length === 0) return;
    startIteration();
    while (requests.length > 0 && performance.now() < end) {
      const request = requests.shift()!;
      arrival = request.arrival;
      wait = performance.now() - arrival;
      request.begin();
    }
    for (; freeSlots > 0 && slotQueue.length > 0; freeSlots--) slotQueue.shift()!();
  };

  /** Waits for a slot. `asks` is 1 for an ask, and 0 for a model's answer, because its ask has already begun. */
  const awaitSlot = (asks: 0 | 1) =>
    Effect.callback<void>((resume) => {
      // The request may have started in an earlier iteration, so `start` may not have been set for this one yet.
      if (!isIterating) startIteration();
      if (freeSlots > 0 && slotQueue.length === 0) {
        freeSlots--;
        return resume(Effect.void);
      }
      const begin = () => {
        waitingAsks -= asks;
        resume(Effect.void);
      };
      waitingAsks += asks;
      slotQueue.push(begin);
      return Effect.sync(() => {
        const place = slotQueue.indexOf(begin);
        if (place < 0) return;
        slotQueue.splice(place, 1);
        waitingAsks -= asks;
      });
    });

  /** Resolves when an iteration has a slot for a model's answer. */
  const awaitAnswerSlot = () => Effect.runPromise(awaitSlot(0));

  const delay = (): number => {
    const now = performance.now();
    // An iteration has slots for only some of the asks and answers that are waiting.
    const iteration = Math.max(lastInterval, now - measuredAt, interval);
    return Math.max(wait, iteration, (iteration * slotQueue.length) / slots) - interval;
  };
  const loop: EventLoop = {
    arrival: () => arrival,
    delay,
    waiting: () => waitingAsks,
    awaitSlot: awaitSlot(1),
  };

  /** Must be called for each new connection. */
  const noteConnection = (): void => void (hasNewConnection = true);

  /** Starts a request now, or in a later iteration if other requests are waiting or this iteration has no time left. */
  const enter = (begin: () => void): void => {
    latestRequestAt = performance.now();
    if (timer === null) {
      [measuredAt, lastInterval] = [latestRequestAt, 0];
      timer = setInterval(measure, interval).unref();
    }
    if (!isIterating) startIteration();
    if (requests.length === 0 && latestRequestAt < end) {
      arrival = start;
      wait = latestRequestAt - start;
      begin();
    } else requests.push({ arrival: start, begin });
  };

  return { loop, awaitAnswerSlot, noteConnection, enter };
};

/** The queue of this process, which has one event loop. */
export const RequestQueue = Context.Reference("@parley/server/RequestQueue", {
  defaultValue: makeRequestQueue,
});
export type RequestQueue = typeof RequestQueue.Service;
