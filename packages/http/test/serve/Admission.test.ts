/**
 * Tests the admission of asks on a simulated server: an event loop that does one thing at a time, and a language model
 * that answers after a delay. Time is simulated too, so the results do not depend on the machine.
 */
import { Effect } from "effect";
import { expect, it } from "vitest";
import { makeAdmission } from "../../src/serve/Admission.ts";

/** Work in milliseconds. `read` is spent twice on each request: on reading it, and on deciding whether to accept it. */
interface Work {
  readonly read: number;
  readonly begin: number;
  readonly end: number;
}
const usual: Work = { read: 0.03, begin: 0.35, end: 0.5 };

/** How many asks per second the server can answer while it refuses `refused` more per second. */
const capacityOf = ({ begin, end, read }: Work, refused = 0) =>
  (1000 - refused * 2 * read) / (2 * read + begin + end);
const capacity = capacityOf(usual);

interface Ask {
  readonly at: number;
  readonly key: string;
  /** How long the model takes to answer, in milliseconds. */
  readonly model: number;
}

/** Pseudo-random numbers from 0 to 1, the same in every run. */
const makeRandom =
  (seed = 1) =>
  () =>
    (seed = (seed * 48_271) % 2_147_483_647) / 2_147_483_647;

/** Asks that arrive at a steady rate between two times. */
const steady = (key: string, perSecond: number, from: number, to: number, model = 300) => {
  const random = makeRandom();
  return Array.from({ length: Math.floor(((to - from) * perSecond) / 1000) }, (_, n): Ask => ({
    key,
    at: from + ((n + random()) * 1000) / perSecond,
    model: model * (0.95 + 0.1 * random()),
  }));
};

/** What happened to a key's asks. */
class Outcome {
  /** When each ask arrived, and how long it took to refuse it or, in `answered`, to answer it. */
  readonly refused: Array<readonly [at: number, millis: number]> = [];
  readonly answered: Array<readonly [at: number, millis: number]> = [];
  answeredAfter(from: number, to: number) {
    return this.answered.filter(([at, millis]) => at + millis >= from && at + millis < to).length;
  }
  percentile(share: number, of = this.answered) {
    const sorted = of.map(([, millis]) => millis).toSorted((a, b) => a - b);
    return sorted[Math.floor(sorted.length * share)] ?? 0;
  }
}

/** Runs the server until it is idle. Returns the outcomes by key, and the maximum number of asks in progress. */
const run = (
  asks: ReadonlyArray<Ask>,
  work = usual,
  pauses: ReadonlyArray<readonly [at: number, millis: number]> = [],
) => {
  const arriving = asks.toSorted((a, b) => a.at - b.at);
  const requests: Array<{ readonly arrival: number; readonly ask: Ask }> = [];
  /** Accepted asks that have not begun, and asks whose answer has arrived. */
  const queue: Array<{
    readonly since: number;
    readonly ask: Ask;
    readonly isAnswered: boolean;
  }> = [];
  const ends: Array<{ readonly at: number; readonly ask: Ask }> = [];
  const outcomes = new Map<string, Outcome>();
  const outcomeOf = (key: string) =>
    outcomes.get(key) ?? outcomes.set(key, new Outcome()).get(key)!;
  let time = 0;
  let arrival = 0;
  let iterationStart = 0;
  let lastIteration = 0;
  let begun = 0;
  let most = 0;
  const loop = {
    arrival: () => arrival,
    delay: () => {
      const iteration = Math.max(lastIteration, time - iterationStart, 5);
      return Math.max(time - arrival, iteration, (iteration * queue.length) / 16) - 5;
    },
    waiting: () => queue.filter(({ isAnswered }) => !isAnswered).length,
    awaitSlot: Effect.void,
  };
  const admit = makeAdmission(loop);
  let next = 0;
  const remaining = [...pauses];
  while (next < arriving.length || requests.length + queue.length + ends.length > 0) {
    iterationStart = time;
    if ((remaining[0]?.[0] ?? Infinity) <= time) time += remaining.shift()![1];
    for (; (arriving[next]?.at ?? Infinity) <= iterationStart; next++) {
      time += work.read;
      requests.push({ arrival: iterationStart, ask: arriving[next]! });
    }
    ends.sort((a, b) => a.at - b.at);
    while ((ends[0]?.at ?? Infinity) <= iterationStart)
      queue.push({ since: time, ask: ends.shift()!.ask, isAnswered: true });
    const slice = time + 5;
    for (; requests.length > 0 && time < slice; time += work.read) {
      const { ask } = requests[0]!;
      arrival = requests.shift()!.arrival;
      if (admit(ask.key, begun)) queue.push({ since: time, ask, isAnswered: false });
      else outcomeOf(ask.key).refused.push([ask.at, time - ask.at]);
    }
    for (const { ask, isAnswered } of queue.splice(0, 16)) {
      if (isAnswered) {
        time += work.end;
        begun--;
        outcomeOf(ask.key).answered.push([ask.at, time - ask.at]);
      } else {
        time += work.begin;
        most = Math.max(most, ++begun);
        ends.push({ at: time + ask.model, ask });
      }
    }
    lastIteration = time - iterationStart;
    if (time === iterationStart)
      time = Math.min(arriving[next]?.at ?? Infinity, ends[0]?.at ?? Infinity);
  }
  return { of: outcomeOf, most };
};

const seconds = 12_000;
/** Five asks per second, about as many as one user's page might send. */
const polite = (model?: number) => steady("polite", 5, 100, seconds, model);

for (const [times, goodput] of [
  [2, 0.87],
  [5, 0.8],
] as const)
  for (const model of [50, 300])
    it(`at ${times} times its capacity, with a model that takes ${model} ms, a server answers over ${goodput * 100}% of what it could`, () => {
      const { of } = run([
        ...steady("flood", times * capacity, 100, seconds, model),
        ...polite(model),
      ]);
      const flood = of("flood");
      const answered =
        flood.answeredAfter(2_000, seconds) + of("polite").answeredAfter(2_000, seconds);
      const possible = capacityOf(usual, times * capacity - answered / 10);
      expect(answered / 10 / possible).toBeGreaterThan(goodput);
      expect(flood.percentile(0.99)).toBeLessThan(model === 300 ? 800 : 650);
      expect(flood.percentile(0.5, flood.refused)).toBeLessThan(model === 300 ? 50 : 150);
      const later = flood.refused.filter(([at]) => at > 1_000);
      expect(flood.percentile(0.99, later)).toBeLessThan(model === 300 ? 150 : 250);
      expect(of("polite").refused).toEqual([]);
    });

it("at five times its capacity, with a model that takes five seconds, a server never refuses a key that asks little", () => {
  const { most, of } = run([
    ...steady("flood", 5 * capacity, 100, 30_000, 5_000),
    ...steady("polite", 5, 100, 30_000, 5_000),
  ]);
  expect(of("flood").answeredAfter(15_000, 30_000) / 15 / capacity).toBeGreaterThan(0.6);
  expect(most).toBeLessThan(2 * 5 * capacity);
  expect(of("polite").refused).toEqual([]);
});

it("an overloaded server serves twenty flooding keys about equally, and never refuses a key that asks little", () => {
  const floods = Array.from({ length: 20 }, (_, n) =>
    steady(`flood ${n}`, capacity / 4, 100 + n, seconds),
  ).flat();
  const { of } = run([...floods, ...polite()]);
  expect(of("polite").refused).toEqual([]);
  const answered = Array.from({ length: 20 }, (_, n) => of(`flood ${n}`).answered.length);
  expect(Math.min(...answered)).toBeGreaterThan(Math.max(...answered) / 2);
});

it("an overloaded server maintains its throughput when a thousand keys each ask a little", () => {
  const floods = Array.from({ length: 1000 }, (_, n) =>
    steady(`key ${n}`, (3 * capacity) / 1000, 100 + n, seconds),
  ).flat();
  const { most, of } = run(floods);
  const answered = Array.from({ length: 1000 }, (_, n) =>
    of(`key ${n}`).answeredAfter(5_000, seconds),
  );
  const sum = answered.reduce((total, amount) => total + amount);
  expect(sum / 7 / capacityOf(usual, 3 * capacity - sum / 7)).toBeGreaterThan(0.85);
  expect(most).toBeLessThan(capacity);
});

it("a server refuses no asks from one second after an overload ends", () => {
  const { of } = run([
    ...steady("flood", 5 * capacity, 100, 6_000),
    ...steady("flood", capacity / 2, 6_000, seconds),
  ]);
  expect(of("flood").refused.filter(([at]) => at > 7_000)).toEqual([]);
  expect(
    of("flood").percentile(
      0.99,
      of("flood").answered.filter(([at]) => at > 7_000),
    ),
  ).toBeLessThan(330);
});

for (const millis of [0, 40, 80])
  it(`a lightly loaded server accepts three thousand asks within ${millis} ms, even if the model is slow`, () => {
    const burst = Array.from({ length: 3000 }, (_, n): Ask => ({
      key: "burst",
      at: 1_000 + (n * millis) / 3000,
      model: 5_000,
    }));
    const { of } = run([...burst, ...polite()]);
    expect(of("burst").refused).toEqual([]);
    expect(of("polite").refused).toEqual([]);
    // If requests are slow to read, the last requests in a longer burst seem to arrive late.
    const slow = run([...burst, ...polite()], { ...usual, read: 10 * usual.read });
    expect(slow.of("burst").answered.length).toBeGreaterThanOrEqual(millis === 0 ? 3_000 : 2_000);
    expect(slow.of("polite").refused).toEqual([]);
  });

// If the first ask's key has to be looked up, that ask is decided on only after the others have been read.
it.each([0, 100])(
  "two seconds after its last refusal, a server that is %i ms late accepts two thousand asks at once",
  (later) => {
    let [time, delay] = [0, 100];
    const loop = {
      arrival: () => time,
      delay: () => delay,
      waiting: () => 0,
      awaitSlot: Effect.void,
    };
    const admit = makeAdmission(loop);
    let isRefused = false;
    for (; time < 1_000; time++) isRefused = !admit("flood", 1_000);
    expect(isRefused).toBe(true);
    [time, delay] = [3_000, later];
    const admitted = Array.from({ length: 2_000 }, (_, n) => admit("burst", n));
    expect(admitted.indexOf(false)).toBe(-1);
  },
);

it.each([
  [100, 0],
  [300, 0.01],
])(
  "at half its capacity, a server with pauses of %i ms refuses at most a fraction of %f of the asks",
  (millis, share) => {
    const pauses = [3_000, 5_000, 8_000].map((at) => [at, millis] as const);
    const { of } = run(steady("key", capacity / 2, 100, seconds), usual, pauses);
    const { answered, refused } = of("key");
    expect(refused.length / answered.length).toBeLessThanOrEqual(share);
  },
);

it("at nine tenths of its capacity, a server refuses fewer than one ask in a hundred", () => {
  const { of } = run(steady("key", 0.9 * capacity, 100, seconds));
  expect(of("key").refused.length / of("key").answered.length).toBeLessThan(0.01);
});

it("asks that cost more to complete than to begin do not queue up for long", () => {
  const work: Work = { read: 0.03, begin: 0.6, end: 1.3 };
  const { of } = run([...steady("flood", 5 * capacityOf(work), 100, seconds), ...polite()], work);
  expect(of("flood").answeredAfter(4_000, seconds) / 8 / capacityOf(work)).toBeGreaterThan(0.7);
  // Leaves out the asks that were accepted before the server noticed that it was full.
  const later = of("flood").answered.filter(([at]) => at > 2_000);
  expect(of("flood").percentile(0.5, later)).toBeLessThan(500);
  expect(of("flood").percentile(0.9, later)).toBeLessThan(1_000);
  expect(of("polite").refused).toEqual([]);
});
