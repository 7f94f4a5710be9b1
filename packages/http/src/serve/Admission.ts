/**
 * Decides which asks a full server accepts. Their number depends on how late the event loop is, not on a setting.
 *
 * Stability. Accepting an ask costs the event loop some work at once, and more work much later, when the model answers.
 * So a decision takes effect late, and a controller that accepts asks until the loop is late accepts too many. This
 * controller reviews its decisions in steps of 30 milliseconds or more. Four choices keep it stable:
 *
 * - It limits asks in progress, not asks per second. However fast the model is, each finished answer makes room for one
 *   ask, and the work that follows later is bounded from the start.
 * - What counts is the shortest delay in a step, not the longest, and a server is full only after two late steps in a
 *   row, the second at least as late as the first. After a pause (a garbage collection, a large page), the first
 *   requests are late and the next less so; on a full server, all requests are late, and increasingly so. So an idle
 *   server accepts thousands of asks that arrive at once.
 * - While the loop is late, the limit falls slowly, starting from the number of asks in progress if that is lower.
 *   Otherwise the limit grows slowly, starting from that number if it is higher, so that the limit of a server that is
 *   becoming full does not overshoot by much. If the loop is not late, the limit is lifted after a second without a
 *   refusal: a shorter time is only the lull between two waves of answers. It is also lifted after a step that a lack
 *   of asks stretches to twice the minimum length, if the loop is not late or few asks are in progress.
 * - While the loop is late, a full server accepts no more asks in a step than it does on average, except within the
 *   shares below. Otherwise the asks that arrived during a pause would start together, and their answers would arrive
 *   together and cause the next pause.
 *
 * Fairness. Half of the asks that a full server accepts per second are shared equally among the keys; the other half
 * are admitted within the limit, in order of arrival. So the controller never refuses a key that asks less than its
 * share, whatever the other keys do.
 */
import type { Effect } from "effect";

/** The event loop of the process. */
export interface EventLoop {
  /** When the loop began the iteration in which it read the request that started last, in milliseconds. */
  readonly arrival: () => number;
  /** How late the loop is: how long work that is ready has to wait, in milliseconds. */
  readonly delay: () => number;
  /** Delays an accepted ask until an iteration has time for it, so that iterations stay short. */
  readonly awaitSlot: Effect.Effect<void>;
  /** The number of accepted asks that are waiting for a slot. */
  readonly waiting: () => number;
}

/**
 * The minimum length of a step in milliseconds, measured between arrivals, so that a burst counts as short even if it
 * takes long to read and decide on. A step ends at the first ask after this time.
 */
const step = 30;

/** The delay above which the event loop counts as late, in milliseconds. */
const lateAfter = 10;

/** The factors by which the limit rises or falls in a step. */
const growth = 1.04;
const decline = 0.96;

/** A server with fewer asks in progress is never full: it is better to answer them late than to refuse them. */
const minFullLoad = 128;

/**
 * The period of the moving average, the time for which a key keeps its share after its last ask, and the time after
 * which the limit is lifted if no ask is refused, in milliseconds.
 */
const period = 1_000;

/** Creates a function that accepts or refuses an ask, given the id of its key and how many asks are in progress. */
export const makeAdmission = (loop: EventLoop) => {
  let limit = Infinity;
  /** Asks per second that the server accepts, as a moving average that rises fast only while the server is not full. */
  let rate = 0;
  /** How many asks per second the server accepts from each key, however full the server is. */
  let share = 0;
  /** What remained of each key's share at its latest ask, by key id; negative if the key got more than its share. */
  const accounts = new Map<string, { balance: number; updatedAt: number }>();
  let stepStart = -Infinity;
  let leastDelay = Infinity;
  /** The shortest delay in the previous step. */
  let previousLeastDelay = 0;
  let acceptedAsks = 0;
  /** After this many asks in a step, a full server whose loop is late accepts only asks within the shares. */
  let pace = Infinity;
  let lastRefusal = -Infinity;

  const endStep = (time: number, load: number, delay: number): void => {
    const millis = Math.min(time - stepStart, period);
    const isLate = leastDelay > lateAfter;
    const wasLate = previousLeastDelay > lateAfter;
    // After a step that lasted twice the minimum length, the server is idle unless its loop is late. With few asks in
    // progress, it is idle even then: a burst that begins with this ask may have just made the loop late.
    const hasTime = delay <= lateAfter || load < minFullLoad;
    const isIdle = time - stepStart >= 2 * step && hasTime;
    if (isIdle) limit = Infinity;
    else if (isLate && wasLate && (limit < Infinity || leastDelay >= previousLeastDelay))
      limit = Math.min(limit, load) * decline;
    else if (!isLate && time - lastRefusal >= period) limit = Infinity;
    else if (!isLate) limit = Math.max(limit, load) * growth + 1;
    const currentRate = (1_000 * acceptedAsks) / millis;
    // The rate falls slowly, so that the keys keep their shares if the server stalls for a second.
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
    // A share may be less than one ask per second.
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
