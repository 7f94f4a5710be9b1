import { readFileSync } from "node:fs";
import { expect, it } from "vitest";

it("@parley/core exports at most 80 names, and none with a wildcard", () => {
  const index = readFileSync(new URL("../src/index.ts", import.meta.url), "utf8");
  const lists = [...index.matchAll(/^export (?:type )?\{([^}]*)\}/gm)];
  expect(index.match(/^export\b/gm)).toHaveLength(lists.length);
  const names = lists.flatMap(([, list]) => list!.split(",").filter((name) => name.trim() !== ""));
  expect(names.length).toBeGreaterThan(0);
  expect(names.length).toBeLessThanOrEqual(80);
});
