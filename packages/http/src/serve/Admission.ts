/**
 * Decides which asks a full server takes on. Nobody tells it how many that are: it watches how late the event loop is.
 *
 * The control loop. Taking on an ask costs the event loop some work at once, and more when the model answers, much later.
 * So the effect of a decision shows late, and whoever admits until the loop is late has admitted too many. Three choices
 * make the loop stable:
 *
 * - The limit is one of asks in progress, not of asks a second. Whatever the model's pace is, each answer that ends lets
 *   one ask in, and the work that comes back later is bounded from the start.
 * - What counts is the least delay of a step, not the greatest, and two steps in a row make a server full. After a pause
 *   (a collection of garbage, a large page) the first requests are late, and the next are not; on a full server all are.
 *   And the thousands of asks that come to an idle server at once are taken on.
 * - While the loop is late, the limit falls slowly from the number of asks in progress. Otherwise it grows slowly from
 *   there, so that the step from an idle server to a full one does not overshoot by much, and ends when nothing is refused.
 *
 * Fairness. Half of the asks that a full server takes on in a second belong to the keys, in equal shares; the limit
 * gives the others to whoever comes. So a key that asks less than its share is never refused, whatever others do.
 */
import type { Effect } from "effect";

/** The event loop of the process. */
export interface EventLoop {
  /** When the request that begins now was read, in milliseconds. */
  readonly arrival: () => number;
  /** How late it is: for how long work that is ready waits, in milliseconds. */
  readonly delay: () => number;
  /** Lets an ask that was taken on wait until it may begin, so that the turns of the loop stay short. */
  readonly turn: Effect.Effect<void>;
  /** How many asks wait for that. */
  readonly waiting: () => number;
}

/** The length of a step, in milliseconds: of arrivals, so that a burst counts as short that takes long to decide. */
const step = 40;

/** The delay from which on the event loop is late, in milliseconds. */
const late = 10;

/** How the limit changes in a step. */
const growth = 1.04;
const decline = 0.96;

/** So many asks never make a server full: to answer them late is better than to refuse them. */
const few = 128;

/** How long a key counts after its last ask, in milliseconds. */
const memory = 1_000;

/** Makes a function that takes on or refuses an ask of a key, while so many asks have begun and not ended. */
export const makeAdmission = (loop: EventLoop) => {
  let limit = Infinity;
  /** Asks a second that are taken on when all is well, as a moving mean. */
  let rate = 0;
  /** What a key may ask in a second in any case. */
  let share = 0;
  /** By key: what is left of its share, at the time of its latest ask; below 0 if it was given more. */
  const accounts = new Map<string, { left: number; at: number }>();
  let stepStart = -Infinity;
  let leastDelay = Infinity;
  let wasLate = false;
  let admitted = 0;
  let refused = 0;

  const endStep = (time: number, inProgress: number): void => {
    const millis = Math.min(time - stepStart, memory);
    const isLate = leastDelay > late;
    if (isLate && wasLate) limit = Math.min(limit, inProgress) * decline;
    else if (!isLate) limit = refused === 0 ? Infinity : Math.max(limit, inProgress) * growth + 1;
    const present = (1_000 * admitted) / millis;
    // It falls slowly: a server that stands still for a second does not owe the keys less.
    rate += (millis / memory) * (present > rate ? 1 : 0.1) * (present - rate);
    for (const [key, { at }] of accounts) if (time - at > memory) accounts.delete(key);
    share = rate / 2 / Math.max(accounts.size, 1);
    stepStart = time;
    leastDelay = Infinity;
    wasLate = isLate;
    admitted = refused = 0;
  };

  return (key: string, begun: number): boolean => {
    const time = loop.arrival();
    const inProgress = begun + loop.waiting();
    leastDelay = Math.min(leastDelay, loop.delay());
    if (time - stepStart >= step) endStep(time, inProgress);
    const account = accounts.get(key) ?? { left: 1, at: time };
    // A share may be less than one ask a second.
    const most = Math.max(share, 1);
    account.left = Math.min(account.left + (share * (time - account.at)) / 1_000, most);
    account.at = time;
    accounts.set(key, account);
    if (inProgress >= Math.max(limit, few) && account.left < 1) {
      refused++;
      return false;
    }
    account.left = Math.max(account.left - 1, -most);
    admitted++;
    return true;
  };
};
