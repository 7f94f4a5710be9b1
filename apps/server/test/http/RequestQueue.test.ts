/**
 * The queue starts requests in turn by key. The clock moves by a tenth of a millisecond with each start, and otherwise
 * only when a test moves it.
 */
import type { IncomingMessage, ServerResponse } from "node:http";
import { afterEach, beforeEach, expect, it, vi } from "vitest";
import { makeRequestQueue } from "../../src/http/RequestQueue.ts";

let millis = 0;
beforeEach(() => void vi.spyOn(performance, "now").mockImplementation(() => millis));
afterEach(() => void vi.restoreAllMocks());

const setUp = () => {
  const queue = makeRequestQueue();
  const starts: Array<{ readonly key: string; readonly isExcess: boolean }> = [];
  let discardedBodies = 0;
  const enter = (key: string, count: number, method = "POST") => {
    for (let n = 0; n < count; n++) {
      const headers = { "x-api-key": key };
      const resume = () => void discardedBodies++;
      const request = { method, headers, resume } as unknown as IncomingMessage;
      queue.enter(request, {} as ServerResponse, () => {
        starts.push({ key, isExcess: queue.turns.isExcess(request) });
        millis += 0.1;
      });
    }
  };
  /** Runs an iteration of the event loop; returns the requests that it started. */
  const iterate = async () => {
    const begun = starts.length;
    await new Promise(setImmediate);
    return starts.slice(begun);
  };
  const count = (key: string) => starts.filter((start) => start.key === key).length;
  return { queue, enter, iterate, starts, count, discardedBodies: () => discardedBodies };
};

it("an iteration starts requests for half a millisecond, and a key's request starts in the next iteration whatever another key sends", async () => {
  for (const method of ["POST", "GET"]) {
    const { enter, iterate } = setUp();
    enter("flood", method === "POST" ? 256 : 16_000, method);
    expect(await iterate()).toHaveLength(5);
    enter("polite", 1, method);
    expect((await iterate()).slice(0, 2).map(({ key }) => key)).toContain("polite");
  }
});

it("an iteration starts four times as many requests after five seconds in which nobody else has sent one with a key", async () => {
  const { enter, iterate } = setUp();
  enter("polite", 1);
  enter("flood", 240);
  await iterate();
  millis += 5_001;
  enter("flood", 1);
  enter("", 1, "GET");
  expect(await iterate()).toHaveLength(20);
  enter("polite", 1);
  const requests = await iterate();
  expect(requests).toHaveLength(5);
  expect(requests.slice(0, 2).map(({ key }) => key)).toContain("polite");
});

it("of sixteen thousand asks of one key at once, all but 257 are refused without their bodies, and another key's ask is not", async () => {
  const { count, discardedBodies, enter, iterate, starts } = setUp();
  enter("flood", 16_000);
  enter("polite", 1);
  expect(discardedBodies()).toBe(16_000 - 257);
  const begun = await iterate();
  expect(begun.filter(({ isExcess }) => !isExcess).map(({ key }) => key)).toContain("polite");
  // A few milliseconds of refusals and starts.
  expect(begun.length).toBeLessThan(30);
  while (starts.length < 16_001) await iterate();
  expect(starts.filter(({ isExcess }) => isExcess)).toHaveLength(16_000 - 257);
  expect(count("polite")).toBe(1);
  enter("flood", 256);
  while (starts.length < 16_257) await iterate();
  expect(starts.slice(16_001).every(({ isExcess }) => !isExcess)).toBe(true);
});

it("a visitor leaves an eighth of the asks that may wait to the key's other visitors", () => {
  const { discardedBodies, enter, queue } = setUp();
  for (const visitor of ["x", "y"])
    queue.turns.noteClient(visitor, { apiKeyId: "widget", visitor });
  enter("x", 300);
  expect(discardedBodies()).toBe(300 - 225);
  enter("y", 28);
  expect(discardedBodies()).toBe(300 - 225);
});

it("requests that do not write wait however many they are", async () => {
  const { discardedBodies, enter } = setUp();
  enter("reader", 2_000, "GET");
  expect(discardedBodies()).toBe(0);
});

it("a visitor's token takes turns within its key", async () => {
  const { count, enter, iterate, queue } = setUp();
  for (const visitor of ["x", "y", "z"])
    queue.turns.noteClient(visitor, { apiKeyId: "widget", visitor });
  for (const visitor of ["x", "y", "z"]) enter(visitor, 100);
  enter("polite", 100);
  for (let n = 0; n < 12; n++) await iterate();
  expect(count("polite")).toBeGreaterThanOrEqual(29);
  for (const visitor of ["x", "y", "z"]) expect(count(visitor)).toBeGreaterThanOrEqual(9);
});

it("made-up keys count as one key beyond the first hundred", async () => {
  const { count, enter, iterate, queue } = setUp();
  queue.turns.noteClient("polite", { apiKeyId: "polite" });
  for (let n = 0; n < 10_000; n++) enter(`made up ${n}`, 1);
  enter("polite", 2);
  for (let n = 0; n < 42; n++) await iterate();
  expect(count("polite")).toBe(2);
});
