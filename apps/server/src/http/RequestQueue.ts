/**
 * The requests that wait for the event loop. In one turn, Node reads from every connection that has something to read,
 * but accepts a single new one. If each request began as soon as it is read, a turn would take as long as all of them
 * together, and a new client would wait for many such turns. So the requests of a turn begin within a few milliseconds,
 * and the others in the turns that follow, in order of arrival. While connections arrive, the turns are even shorter.
 * Accepted asks come last: they cost more than the rest.
 */
import type { EventLoop } from "@parley/http";
import { Effect } from "effect";

/** How long requests may begin in one turn, in milliseconds. */
const slice = 5;

/** The same after a new connection, because others may wait to be accepted. */
const acceptingSlice = 1;

/** How often a timer measures the turns, in milliseconds. In a longer turn it is due once. */
const interval = 5;

/** After how long without a request the timer ends, in milliseconds: it must not wake an idle machine. */
const idleAfter = 1_000;

/** Makes the queue of a process, which its listeners share. */
export const makeRequestQueue = () => {
  const requests: Array<{ readonly arrival: number; readonly begin: () => void }> = [];
  const asks: Array<{ readonly since: number; readonly begin: () => void }> = [];
  let isInTurn = false;
  let hasAccepted = false;
  /** When this turn began, which is the arrival of what it reads: a slow machine takes long to read a burst. */
  let start = 0;
  /** When nothing further begins in this turn. */
  let end = 0;
  let latest = 0;
  let arrival = 0;
  /** How long the latest request waited until it began. */
  let wait = 0;
  let timer: NodeJS.Timeout | null = null;
  let turnStart = 0;
  let lastTurn = 0;

  const measure = (): void => {
    const now = performance.now();
    lastTurn = now - turnStart;
    turnStart = now;
    if (now - latest < idleAfter) return;
    clearInterval(timer!);
    timer = null;
  };
  const startTurn = (): void => {
    isInTurn = true;
    start = performance.now();
    end = start + (hasAccepted ? acceptingSlice : slice);
    hasAccepted = false;
    setImmediate(endTurn);
  };
  const endTurn = (): void => {
    isInTurn = false;
    if (requests.length + asks.length === 0) return;
    startTurn();
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
      return Math.max(wait, lastTurn, now - turnStart, now - (asks[0]?.since ?? now)) - interval;
    },
    waiting: () => asks.length,
    turn: Effect.callback<void>((resume) => {
      const since = performance.now();
      // The look-up of the key may have taken many turns.
      if (!isInTurn) startTurn();
      if (asks.length === 0 && since < end) return resume(Effect.void);
      const ask = { since, begin: () => resume(Effect.void) };
      asks.push(ask);
      return Effect.sync(() => {
        if (asks.includes(ask)) asks.splice(asks.indexOf(ask), 1);
      });
    }),
  };
  return {
    loop,
    /** To be called for each new connection. */
    noteConnection: (): void => void (hasAccepted = true),
    /** Begins a request at once, or behind the others if this turn has lasted long enough. */
    enter: (begin: () => void): void => {
      latest = performance.now();
      if (timer === null) {
        [turnStart, lastTurn] = [latest, 0];
        timer = setInterval(measure, interval).unref();
      }
      if (!isInTurn) startTurn();
      if (requests.length === 0 && latest < end) {
        arrival = start;
        wait = latest - start;
        begin();
      } else requests.push({ arrival: start, begin });
    },
  };
};

export type RequestQueue = ReturnType<typeof makeRequestQueue>;
