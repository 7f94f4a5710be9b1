/**
 * Decides which asks a full server takes on. Nobody tells it how many that are: it watches how late the event loop is.
 *
 * The control loop. Taking on an ask costs the event loop some work at once, and more when the model answers, much later.
 * So the effect of a decision shows late, and whoever admits until the loop is late has admitted too many. Three choices
 * make the loop stable:
 *
 * - The limit is one of asks in progress, not of asks a second. Whatever the model's pace is, each answer that ends lets
 *   one ask in, and the work that comes back later is bounded from the start.
 * - What counts is the least delay of a step, not the greatest. After a pause (a collection of garbage, a large page) the
 *   first requests are late, and the next are not; on a full server all are.
 * - There is no limit when a step has refused nothing and no more asks wait than before. When the asks of a burst still
 *   wait, but no more come, the delay ends by itself, and all of them are served.
 *
 * While the loop is late, the limit falls slowly from the number of asks in progress; otherwise it grows slowly from
 * there, so that the step from an idle server to a full one does not overshoot by much. Asks that came before the server
 * was full are taken on in any case.
 *
 * Fairness. Half of the asks that a full server takes on in a second belong to the keys, in equal shares; the limit
 * gives the others to whoever comes. So a key that asks less than its share is never refused, whatever others do.
 */

/** What the admission needs to know about the process. */
export interface EventLoop {
  /** How late the request is that begins now: for how long its work was ready to be done, in milliseconds. */
  readonly delay: () => number;
  /** When that request was read, on the clock of `performance.now`. */
  readonly arrival: () => number;
  /** How many requests have been read, and wait to begin. */
  readonly waiting: () => number;
}

/** The length of a step, in milliseconds. */
const step = 50;

/** The delay from which on the event loop is late, in milliseconds. */
const late = 10;

/** How the limit changes in a step. */
const growth = 1.05;
const decline = 0.95;

/** So many asks never make a server full: to answer them late is better than to refuse them. */
const few = 128;

/** How long a server must not have been full to take on a burst, in milliseconds. */
const rest = 5_000;

/** How long a key counts after its last ask, in milliseconds. */
const memory = 1_000;

/**
 * Makes a function that takes on or refuses an ask of a key, while so many asks are in progress.
 *
 * @param now a clock in milliseconds
 */
export const makeAdmission = (loop: EventLoop, now: () => number = () => performance.now()) => {
  let limit = Infinity;
  /** Since when there is a limit; asks that came before are taken on. */
  let fullSince = Infinity;
  let lastFull = -Infinity;
  /** Asks a second that are taken on when all is well, as a moving mean. */
  let rate = 0;
  /** What a key may ask in a second in any case. */
  let share = 0;
  /** By key: what is left of its share, at the time of its latest ask; below 0 if it was given more. */
  const accounts = new Map<string, { left: number; at: number }>();
  let stepStart = -Infinity;
  let leastDelay = Infinity;
  let admitted = 0;
  let refused = 0;
  let waitedBefore = 0;

  const endStep = (time: number, inProgress: number): void => {
    const millis = Math.min(time - stepStart, memory);
    const waiting = loop.waiting();
    const isOver = refused === 0 && admitted > 0 && waiting <= waitedBefore;
    if (isOver) limit = fullSince = Infinity;
    else if (leastDelay > late) {
      if (limit === Infinity) fullSince = time - lastFull > rest ? time : -Infinity;
      limit = Math.min(limit, inProgress) * decline;
    } else if (limit < Infinity) limit = Math.max(limit, inProgress) * growth + 1;
    const present = (1_000 * admitted) / millis;
    // It falls slowly: a server that stands still for a second does not owe the keys less.
    if (limit < Infinity) lastFull = time;
    rate += (millis / memory) * (present > rate ? 1 : 0.1) * (present - rate);
    for (const [key, { at }] of accounts) if (time - at > memory) accounts.delete(key);
    share = rate / 2 / Math.max(accounts.size, 1);
    stepStart = time;
    leastDelay = Infinity;
    admitted = refused = 0;
    waitedBefore = waiting;
  };

  return (key: string, inProgress: number): boolean => {
    const time = now();
    leastDelay = Math.min(leastDelay, loop.delay());
    if (time - stepStart >= step) endStep(time, inProgress);
    const account = accounts.get(key) ?? { left: 1, at: time };
    // A share may be less than one ask a second.
    const most = Math.max(share, 1);
    account.left = Math.min(account.left + (share * (time - account.at)) / 1_000, most);
    account.at = time;
    accounts.set(key, account);
    const isFull = inProgress >= limit && inProgress + loop.waiting() >= few;
    if (isFull && account.left < 1 && loop.arrival() >= fullSince) {
      refused++;
      return false;
    }
    account.left = Math.max(account.left - 1, -most);
    admitted++;
    return true;
  };
};
