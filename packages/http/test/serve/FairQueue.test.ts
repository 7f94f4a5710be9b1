import { FairQueue } from "@parley/http";
import { expect, it } from "vitest";

const drain = (queue: FairQueue<string>) => {
  const items: Array<string> = [];
  for (let item; (item = queue.shift()) !== undefined;) items.push(item);
  return items;
};

it("keys are served in turn, and each key's visitors in turn, in order of arrival", () => {
  const queue = new FairQueue<string>();
  for (let n = 0; n < 4; n++) queue.push({ apiKeyId: "a", visitor: "x" }, `ax${n}`);
  queue.push({ apiKeyId: "a", visitor: "y" }, "ay0");
  for (let n = 0; n < 2; n++) queue.push({ apiKeyId: "b" }, `b${n}`);
  expect(queue.keys).toBe(2);
  expect(drain(queue)).toEqual(["ax0", "b0", "ay0", "b1", "ax1", "ax2", "ax3"]);
  expect([queue.size, queue.keys]).toEqual([0, 0]);
});

it("a client that is not ready is passed over, and an item can leave the queue", () => {
  const queue = new FairQueue<string>();
  const [a, b] = [{ apiKeyId: "a" }, { apiKeyId: "b" }];
  for (const item of ["a0", "a1"]) queue.push(a, item);
  queue.push(b, "b0");
  queue.remove(a, "a0");
  queue.remove(a, "a2");
  expect(queue.sizeOf(a)).toBe(1);
  expect(queue.shift(({ apiKeyId }) => apiKeyId === "b")).toBe("b0");
  expect(queue.shift(({ apiKeyId }) => apiKeyId === "b")).toBeUndefined();
  expect(drain(queue)).toEqual(["a1"]);
});
