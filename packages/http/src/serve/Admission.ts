/**
 * Decides which asks a full server accepts. No setting says how many: it measures how late the event loop is.
 *
 * The control loop. Accepting an ask costs the event loop some work at once, and more when the model answers, much later.
 * So a decision takes effect late, and a controller that accepts asks until the loop is late has accepted too many. Four
 * choices make the control stable:
 *
 * - It limits asks in progress, not asks per second. Whatever the model's pace, each answer that ends admits one ask, and
 *   the work that follows later is bounded from the start.
 * - The least delay of a step counts, not the greatest, and it takes two steps in a row to make a server full. After a
 *   pause (a garbage collection, a large page), the first requests are late and the next are not; on a full server all
 *   are. So thousands of asks that arrive at an idle server at once are accepted.
 * - While the loop is late, the limit falls slowly from the number of asks in progress. Otherwise it grows slowly from
 *   there, so that the limit of a server that becomes full does not overshoot by much. It ends when nothing was refused
 *   for a second: a shorter pause is only the lull between two waves of answers.
 * - While the loop is late, a full server accepts no more asks in a step than on average. Otherwise those that arrived
 *   during a pause would begin together, their answers would come together, and make the next pause.
 *
 * Fairness. Half of the asks that a full server accepts in a second belong to the keys, in equal shares; the limit admits
 * the others in order of arrival. So a key that asks less than its share is never refused, whatever others do.
 */
import type { Effect } from "effect";

/** The event loop of the process. */
export interface EventLoop {
  /** When the turn of the loop began that read the request that begins now, in milliseconds. */
  readonly arrival: () => number;
  /** How late it is: for how long work that is ready waits, in milliseconds. */
  readonly delay: () => number;
  /** Delays an accepted ask until it may begin, so that the turns of the loop stay short. */
  readonly turn: Effect.Effect<void>;
  /** How many asks wait for that. */
  readonly waiting: () => number;
}

/**
 * The length of a step, in milliseconds between arrivals, so that a burst that takes long to read and decide still
 * counts as short.
 */
const step = 40;

/** The delay above which the event loop counts as late, in milliseconds. */
const late = 10;

/** How the limit changes in a step. */
const growth = 1.04;
const decline = 0.96;

/** This many asks never make a server full: it is better to answer them late than to refuse them. */
const alwaysAccepted = 128;

/** How long a key gets a share after its last ask, in milliseconds. */
const memory = 1_000;

/** Makes a function that accepts or refuses an ask of a key, given how many asks are in progress. */
export const makeAdmission = (loop: EventLoop) => {
  let limit = Infinity;
  /** Asks a second that the server accepts when it is not full, as a moving mean. */
  let rate = 0;
  /** How many asks of a key are accepted in a second in any case. */
  let share = 0;
  /** By key: what is left of its share, at the time of its latest ask; below 0 if the key got more. */
  const accounts = new Map<string, { left: number; at: number }>();
  let stepStart = -Infinity;
  let leastDelay = Infinity;
  let wasLate = false;
  let admitted = 0;
  /** How many asks a full server whose loop is late accepts in a step, besides the shares. */
  let pace = Infinity;
  let lastRefusal = -Infinity;

  const endStep = (time: number, inProgress: number, delay: number): void => {
    const millis = Math.min(time - stepStart, memory);
    const isLate = leastDelay > late;
    // A step without asks refuses nothing. A burst may have made the loop late before its first ask is decided.
    const isIdle = delay <= late || inProgress < alwaysAccepted;
    const hasPaused = time - stepStart >= 2 * step && isIdle;
    if (hasPaused) limit = Infinity;
    else if (isLate && wasLate) limit = Math.min(limit, inProgress) * decline;
    else if (!isLate && time - lastRefusal >= memory) limit = Infinity;
    else if (!isLate) limit = Math.max(limit, inProgress) * growth + 1;
    const present = (1_000 * admitted) / millis;
    // It falls slowly: a server that stalls for a second still owes the keys their shares.
    rate += (millis / memory) * (present > rate && limit === Infinity ? 1 : 0.1) * (present - rate);
    for (const [key, { at }] of accounts) if (time - at > memory) accounts.delete(key);
    share = rate / 2 / Math.max(accounts.size, 1);
    pace = limit === Infinity ? Infinity : (rate * step) / 1_000;
    stepStart = time;
    leastDelay = Infinity;
    wasLate = isLate;
    admitted = 0;
  };

  return (key: string, begun: number): boolean => {
    const time = loop.arrival();
    const inProgress = begun + loop.waiting();
    const delay = loop.delay();
    leastDelay = Math.min(leastDelay, delay);
    if (time - stepStart >= step) endStep(time, inProgress, delay);
    const account = accounts.get(key) ?? { left: 1, at: time };
    // A share may be less than one ask a second.
    const most = Math.max(share, 1);
    account.left = Math.min(account.left + (share * (time - account.at)) / 1_000, most);
    account.at = time;
    accounts.set(key, account);
    const isFull = inProgress >= limit || (delay > late && admitted >= pace);
    if (isFull && inProgress >= alwaysAccepted && account.left < 1) {
      lastRefusal = time;
      return false;
    }
    account.left = Math.max(account.left - 1, -most);
    admitted++;
    return true;
  };
};
