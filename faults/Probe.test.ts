import { describe, expect, test } from "vitest";
import { probes, seed } from "./Amount.ts";
import { probe } from "./Probe.ts";

const timeout = 30_000 + probes * 20;

describe("what one chatbot can learn of another", () => {
  for (const rowSecurity of [false, true]) {
    const name = rowSecurity ? "with row security" : "without row security";
    test(`is nothing, ${name}, however it asks (seed ${seed})`, { timeout }, async () => {
      const { found, requests, statuses, violations } = await probe(probes, seed, { rowSecurity });
      expect(violations).toEqual([]);
      expect(requests).toBe(probes);
      expect(Object.keys(statuses).toSorted()).toEqual(["200", "201", "404", "422"]);
      const all = found.join("\n");
      for (const what of ["shows their text", "shows their chat", "shows their entry"]) {
        expect(all).toContain(what);
      }
      expect(all).toContain("what is theirs has changed");
    });
  }
});
