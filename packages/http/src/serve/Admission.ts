/**
 * Decides which asks a full server accepts. How many depends on how late the event loop is, not on a setting.
 *
 * Stability. Accepting an ask costs the event loop some work at once, and more when the model answers, much later. So a
 * decision takes effect late, and a controller that accepts asks until the loop is late accepts too many. It reviews
 * its decisions in steps of 30 milliseconds or more. Four choices make the control stable:
 *
 * - It limits asks in progress, not asks per second. Whatever the model's pace, each answer that ends makes room for
 *   one ask, and the work that follows later is bounded from the start.
 * - The least delay of a step counts, not the greatest, and only two late steps in a row make a server full, the second
 *   no less late than the first. After a pause (a garbage collection, a large page), the first requests are late, and
 *   the next less so; on a full server all are late, and increasingly so. So thousands of asks that arrive at an idle
 *   server at once are accepted.
 * - While the loop is late, the limit falls slowly, from the number of asks in progress if that is lower. Otherwise it
 *   grows slowly, from that number if that is higher, so that the limit of a server that becomes full does not
 *   overshoot by much. If the loop is not late, there is no limit after a second without a refusal: a shorter time is
 *   only the lull between two waves of answers. Nor is there a limit after a step that lasts twice its least length for
 *   lack of asks, if the loop is not late or few asks are in progress.
 * - While the loop is late, a full server accepts no more asks in a step than on average, except within the shares
 *   below. Otherwise those that arrived during a pause would begin together, and their answers would come together and
 *   cause the next pause.
 *
 * Fairness. Half of the asks that a full server accepts in a second are shared equally among the keys; the limit admits
 * the others in order of arrival. So this control never refuses a key that asks less than its share, whatever the other
 * keys do.
 */
import type { Effect } from "effect";

/** The event loop of the process. */
export interface EventLoop {
  /** When the loop started the iteration that read the latest request to begin, in milliseconds. */
  readonly arrival: () => number;
  /** How late it is: how long ready work waits, in milliseconds. */
  readonly delay: () => number;
  /** Delays an accepted ask until an iteration has time for it, so that iterations stay short. */
  readonly awaitSlot: Effect.Effect<void>;
  /** How many accepted asks wait for a slot. */
  readonly waiting: () => number;
}

/**
 * The least length of a step in milliseconds, measured between arrivals, so that a burst that takes long to read and
 * decide on still counts as short. A step ends at the first ask after this time.
 */
const step = 30;

/** The delay above which the event loop counts as late, in milliseconds. */
const lateAfter = 10;

/** How the limit changes in a step. */
const growth = 1.04;
const decline = 0.96;

/** With fewer asks in progress, no server is full: it is better to answer them late than to refuse them. */
const minFullLoad = 128;

/**
 * The period of the moving mean, how long a key has a share after its last ask, and how long after the last refusal the
 * limit ends, in milliseconds.
 */
const period = 1_000;

/** Creates a function that accepts or refuses an ask, given the id of its key and how many asks are in progress. */
export const makeAdmission = (loop: EventLoop) => {
  let limit = Infinity;
  /** Asks a second that the server accepts, as a moving mean that rises fast only while the server is not full. */
  let rate = 0;
  /** How many asks a second the server accepts from each key, however full it is. */
  let share = 0;
  /** By key: the rest of its share at the time of its latest ask; below 0 if the key got more. */
  const accounts = new Map<string, { balance: number; updatedAt: number }>();
  let stepStart = -Infinity;
  let leastDelay = Infinity;
  /** The least delay of the step before. */
  let previousLeastDelay = 0;
  let acceptedAsks = 0;
  /** After this many asks in a step, a full server whose loop is late accepts only asks within the shares. */
  let pace = Infinity;
  let lastRefusal = -Infinity;

  const endStep = (time: number, load: number, delay: number): void => {
    const millis = Math.min(time - stepStart, period);
    const isLate = leastDelay > lateAfter;
    const wasLate = previousLeastDelay > lateAfter;
    // After a step that lasted twice its least length, the server is idle unless its loop is late. With few asks in
    // progress, it is idle even so: a burst, of which this is the first ask, may have just made the loop late.
    const hasTime = delay <= lateAfter || load < minFullLoad;
    const isIdle = time - stepStart >= 2 * step && hasTime;
    if (isIdle) limit = Infinity;
    else if (isLate && wasLate && (limit < Infinity || leastDelay >= previousLeastDelay))
      limit = Math.min(limit, load) * decline;
    else if (!isLate && time - lastRefusal >= period) limit = Infinity;
    else if (!isLate) limit = Math.max(limit, load) * growth + 1;
    const currentRate = (1_000 * acceptedAsks) / millis;
    // The rate falls slowly: a server that stalls for a second still owes the keys their shares.
    rate +=
      (millis / period) *
      (currentRate > rate && limit === Infinity ? 1 : 0.1) *
      (currentRate - rate);
    for (const [keyId, { updatedAt }] of accounts)
      if (time - updatedAt > period) accounts.delete(keyId);
    share = rate / 2 / Math.max(accounts.size, 1);
    pace = limit === Infinity ? Infinity : (rate * step) / 1_000;
    stepStart = time;
    previousLeastDelay = leastDelay;
    leastDelay = Infinity;
    acceptedAsks = 0;
  };

  return (keyId: string, inProgress: number): boolean => {
    const time = loop.arrival();
    const load = inProgress + loop.waiting();
    const delay = loop.delay();
    leastDelay = Math.min(leastDelay, delay);
    if (time - stepStart >= step) endStep(time, load, delay);
    const account = accounts.get(keyId) ?? { balance: 1, updatedAt: time };
    // A share may be less than one ask a second.
    const maxBalance = Math.max(share, 1);
    const credit = (share * (time - account.updatedAt)) / 1_000;
    account.balance = Math.min(account.balance + credit, maxBalance);
    account.updatedAt = time;
    accounts.set(keyId, account);
    const isFull = load >= limit || (delay > lateAfter && acceptedAsks >= pace);
    if (isFull && load >= minFullLoad && account.balance < 1) {
      lastRefusal = time;
      return false;
    }
    account.balance = Math.max(account.balance - 1, -maxBalance);
    acceptedAsks++;
    return true;
  };
};
