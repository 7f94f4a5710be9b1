/**
 * The work that waits for the event loop. In one iteration, Node reads from every connection with unread data, but
 * accepts a single new connection. If each request started as soon as it is read, an iteration would take as long as
 * all of them together, and a new client would wait for many such iterations. So an iteration starts requests for a few
 * milliseconds, and for even less while connections arrive; the others start in the following iterations, in order of
 * arrival. Accepted asks and the answers of models come last, and are limited by number instead of time: each costs a
 * third of a millisecond, but only later in the iteration, so the clock does not show that cost while they begin.
 */
import type { EventLoop } from "@parley/http";
import { Context, Effect } from "effect";

/** How long one iteration may start requests, in milliseconds. */
const slice = 5;

/** The same after a new connection, because others may wait to be accepted. */
const acceptingSlice = 1;

/** How many asks and answers of models may start in one iteration: together, they take about a slice. */
const slots = 16;

/** How often a timer measures the iterations, in milliseconds. In a longer iteration it fires once. */
const interval = 5;

/** The timer stops after this long without a request, in milliseconds: it must not wake an idle machine. */
const idleAfter = 1_000;

/** Creates the queue of an event loop. */
export const makeRequestQueue = () => {
  const requests: Array<{ readonly arrival: number; readonly begin: () => void }> = [];
  /** Asks and answers that wait for a slot. */
  const slotQueue: Array<() => void> = [];
  let waitingAsks = 0;
  let isIterating = false;
  /** Whether a connection was accepted since the last iteration started. */
  let hasNewConnection = false;
  /**
   * When this iteration started, which counts as the arrival of its requests: a slow machine takes long to read a
   * burst.
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
  /** When the timer last fired, and how long before that it had fired. */
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
  /** Ends the iteration; if work waits, starts the next one with it. */
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

  /** `asks`: what the wait adds to the number of waiting asks; 0 for the answer of a model, whose ask has begun. */
  const awaitSlot = (asks: 0 | 1) =>
    Effect.callback<void>((resume) => {
      // The request may have started in an earlier iteration, so the current iteration may have no start yet.
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

  /** Resolves when an iteration has a slot for the answer of a model. */
  const awaitAnswerSlot = () => Effect.runPromise(awaitSlot(0));

  const delay = (): number => {
    const now = performance.now();
    // Each iteration has slots for only some of the asks and answers that wait.
    const iteration = Math.max(lastInterval, now - measuredAt, interval);
    return Math.max(wait, iteration, (iteration * slotQueue.length) / slots) - interval;
  };
  const loop: EventLoop = {
    arrival: () => arrival,
    delay,
    waiting: () => waitingAsks,
    awaitSlot: awaitSlot(1),
  };

  /** To be called for each new connection. */
  const noteConnection = (): void => void (hasNewConnection = true);

  /** Starts a request at once, or in a later iteration if others wait or this iteration has no time left. */
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
