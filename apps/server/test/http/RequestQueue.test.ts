/**
 * The queue keeps the turns of the event loop short. The requests here keep it busy for a millisecond each.
 */
import { expect, it } from "vitest";
import { makeRequestQueue } from "../../src/http/RequestQueue.ts";

const spin = (): void => {
  const end = performance.now() + 1;
  while (performance.now() < end);
};

it("requests that are read in one turn of the event loop begin in many short ones, those that read first", async () => {
  const queue = makeRequestQueue();
  const began: Array<{ readonly name: string; readonly turn: number; readonly delay: number }> = [];
  let turn = 0;
  for (let n = 0; n < 60; n++) {
    const writes = n % 2 === 0;
    queue.enter(writes, () => {
      began.push({ name: `${writes ? "POST" : "GET"} ${n}`, turn, delay: queue.loop.delay() });
      spin();
    });
  }
  const isPost = ({ name }: { readonly name: string }) => name.startsWith("POST");
  expect(queue.loop.waiting()).toBe(30 - began.filter(isPost).length);
  while (began.length < 60) {
    await new Promise(setImmediate);
    turn++;
  }
  const later = began.filter((request) => request.turn > 0);
  const names = (method: string) =>
    later.map(({ name }) => name).filter((name) => name.startsWith(method));
  const posts = later.filter(isPost);
  const firstOfMany = posts.findIndex(({ turn }, n) => posts[n + 1]?.turn === turn);
  const lastRead = later.findLast(({ name }) => name.startsWith("GET"))!;

  for (let n = 1; n < turn; n++)
    expect(later.filter((request) => request.turn === n).length).toBeLessThanOrEqual(12);
  for (const method of ["GET", "POST"]) {
    const order = names(method).map((name) => Number(name.split(" ")[1]));
    expect(order).toEqual(order.toSorted((a, b) => a - b));
  }
  expect(posts[firstOfMany]!.turn).toBeGreaterThanOrEqual(lastRead.turn - 1);
  expect(began.at(-1)!.delay).toBeGreaterThan(40);
  expect(queue.loop.waiting()).toBe(0);
});
