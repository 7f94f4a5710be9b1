/**
 * The queue keeps the event loop's iterations short. Each request in these tests takes a millisecond.
 */
import { Effect } from "effect";
import { afterEach, beforeEach, expect, it, vi } from "vitest";
import { makeRequestQueue } from "../../src/http/RequestQueue.ts";

let millis = 0;
beforeEach(() => void vi.spyOn(performance, "now").mockImplementation(() => millis));
afterEach(() => void vi.restoreAllMocks());

const spin = (): void => void millis++;

it("requests that are read in one long iteration of the event loop start across many short ones, and so do asks", async () => {
  const queue = makeRequestQueue();
  const began: Array<readonly [what: "request" | "ask", n: number, iteration: number]> = [];
  let iteration = 0;
  let delay = 0;
  for (let n = 0; n < 30; n++) {
    queue.enter(() => {
      began.push(["request", n, iteration]);
      spin();
      const ask = Effect.sync(() => {
        began.push(["ask", n, iteration]);
        delay = Math.max(delay, queue.loop.delay());
        spin();
      });
      Effect.runFork(Effect.andThen(queue.loop.awaitSlot, ask));
    });
  }
  while (began.length < 60) {
    await new Promise(setImmediate);
    iteration++;
  }
  const of = (kind: string) => began.filter(([what]) => what === kind);
  const inOrder = Array.from({ length: 30 }, (_, n) => n);
  expect(of("request").map(([, n]) => n)).toEqual(inOrder);
  expect(of("ask").map(([, n]) => n)).toEqual(inOrder);
  const most = (kind: string) =>
    Math.max(
      ...began.map(([, , at]) => of(kind).filter(([, , iteration]) => iteration === at).length),
    );
  expect(most("request")).toBeLessThanOrEqual(6);
  expect(most("ask")).toBeLessThanOrEqual(16);
  expect(delay).toBeGreaterThan(15);
  expect(queue.loop.waiting()).toBe(0);
});

it("requests that are read in one iteration count as having arrived together, however long reading them takes", async () => {
  const queue = makeRequestQueue();
  const arrivals: Array<number> = [];
  const enter = (count: number) => {
    for (let n = 0; n < count; n++) {
      queue.enter(() => arrivals.push(queue.loop.arrival()));
      spin();
    }
  };
  const start = millis;
  enter(100);
  await new Promise(setImmediate);
  const next = millis;
  enter(100);
  while (arrivals.length < 200) await new Promise(setImmediate);
  expect(new Set(arrivals.slice(0, 100))).toEqual(new Set([start]));
  expect(new Set(arrivals.slice(100))).toEqual(new Set([next]));
});

it("while connections arrive, fewer requests start in each iteration, so that the next connection is accepted soon", async () => {
  const queue = makeRequestQueue();
  const startedIn: Array<number> = [];
  let iteration = 0;
  for (let n = 0; n < 40; n++) {
    queue.enter(() => {
      startedIn.push(iteration);
      spin();
    });
  }
  for (; startedIn.length < 40; iteration++) {
    if (iteration < 10) queue.noteConnection();
    await new Promise(setImmediate);
  }
  const countIn = (iteration: number) => startedIn.filter((n) => n === iteration).length;
  expect(Array.from({ length: 8 }, (_, n) => countIn(n + 1))).toEqual(Array(8).fill(1));
  expect(countIn(12)).toBe(5);
});

it("a long queue of requests delays the event loop, and a request that waits for the store does not", async () => {
  vi.restoreAllMocks();
  const queue = makeRequestQueue();
  const delays: Array<number> = [];
  for (let n = 0; n < 100; n++) {
    queue.enter(() => {
      delays.push(queue.loop.delay());
      const end = performance.now() + 1;
      while (performance.now() < end);
    });
  }
  while (delays.length < 100) await new Promise(setImmediate);
  expect(delays.at(-1)).toBeGreaterThan(80);
  await new Promise((resolve) => queue.enter(() => setTimeout(resolve, 300)));
  expect(queue.loop.delay()).toBeLessThan(200);
});

it("an ask that is interrupted while it waits gives up its place in the queue", async () => {
  const queue = makeRequestQueue();
  for (let n = 0; n < 16; n++) Effect.runFork(queue.loop.awaitSlot);
  const fibers = [0, 1].map(() => Effect.runFork(queue.loop.awaitSlot));
  expect(queue.loop.waiting()).toBe(2);
  fibers[0]!.interruptUnsafe();
  await new Promise((resolve) => fibers[0]!.addObserver(resolve));
  expect(queue.loop.waiting()).toBe(1);
  await new Promise((resolve) => fibers[1]!.addObserver(resolve));
});

it("an ask that needs a slot after its request's iteration has ended starts without another request", async () => {
  const queue = makeRequestQueue();
  queue.enter(() => {});
  await new Promise((resolve) => setTimeout(resolve, 20));
  await Effect.runPromise(Effect.timeout(queue.loop.awaitSlot, "1 second"));
});

it("answers that arrive together are read over many iterations, interleaved with new asks", async () => {
  const queue = makeRequestQueue();
  const began: Array<readonly [what: "answer" | "ask", iteration: number]> = [];
  let iteration = 0;
  for (let n = 0; n < 40; n++) {
    void queue.awaitAnswerSlot().then(() => began.push(["answer", iteration]));
    Effect.runFork(
      Effect.andThen(
        queue.loop.awaitSlot,
        Effect.sync(() => began.push(["ask", iteration])),
      ),
    );
  }
  expect(queue.loop.waiting()).toBe(32);
  for (; began.length < 80; iteration++) await new Promise(setImmediate);
  expect(queue.loop.waiting()).toBe(0);
  // The first 16 begin at once, and 16 more at the end of the same iteration.
  for (let n = 1; n < 4; n++) {
    const together = began.filter(([, at]) => at === n).map(([what]) => what);
    expect(together.toSorted()).toEqual([...Array(8).fill("answer"), ...Array(8).fill("ask")]);
  }
});

it("asks that queue for slots add to the event loop's delay before they have waited", () => {
  const queue = makeRequestQueue();
  queue.enter(() => {});
  for (let n = 0; n < 16; n++) Effect.runFork(queue.loop.awaitSlot);
  expect(queue.loop.delay()).toBeLessThanOrEqual(0);
  for (let n = 0; n < 64; n++) Effect.runFork(queue.loop.awaitSlot);
  expect(queue.loop.delay()).toBeGreaterThanOrEqual(15);
});
