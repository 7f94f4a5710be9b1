import { makePlaces, type Client } from "@parley/core/ports";
import { expect, it } from "vitest";

/** Takes places until the client must wait; returns how many it got. */
const fill = (places: ReturnType<typeof makePlaces>, client: Client, most?: number): number => {
  let count = 0;
  for (; !places.isFull(client, most); count++) places.take(client);
  return count;
};

it("each key may have seven eighths of the places that the other keys leave", () => {
  const places = makePlaces(64);
  const keys = ["a", "b", "c", "d", "e"];
  expect(keys.map((apiKeyId) => fill(places, { apiKeyId }))).toEqual([56, 7, 1, 0, 0]);
});

it("each visitor may have seven eighths of what the key's other visitors leave of the key's places", () => {
  const places = makePlaces(64);
  const visitors = ["x", "y"].map((visitor) => ({ apiKeyId: "a", visitor }));
  expect(visitors.map((client) => fill(places, client))).toEqual([49, 7]);
  expect(fill(places, { apiKeyId: "b" })).toBe(7);
});

it("a bound of its own limits a key below its share", () => {
  expect(fill(makePlaces(64), { apiKeyId: "a" }, 5)).toBe(5);
});

it("a single place is enough for a single client at a time", () => {
  const places = makePlaces(1);
  const free = places.take({ apiKeyId: "a", visitor: "x" });
  expect(places.isFull({ apiKeyId: "b" })).toBe(true);
  free();
  free();
  expect(fill(places, { apiKeyId: "b" })).toBe(1);
});

it("a process that asks without a key may have all places", () => {
  expect(fill(makePlaces(64), {})).toBe(64);
});
