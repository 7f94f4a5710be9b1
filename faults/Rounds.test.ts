import { describe, test } from "vitest";
import { round, type FaultName } from "./Rounds.ts";

// The rounds run concurrently, because a round spends much of its time waiting.
describe.concurrent("rounds of faults", () => {
  test.for<ReadonlyArray<FaultName>>([
    ["kill one of two servers", "freeze one of two servers", "drain a server"],
    ["kill the database", "kill a connection's process", "freeze the database"],
    [
      "kill two servers on a file",
      "kill one of two servers on a file",
      "freeze one of two servers on a file",
    ],
  ])(
    "the promises hold under all of these faults: %s",
    { timeout: 180_000 },
    async (names, { expect }) => {
      const { summary, violations } = await round(names);
      console.log(names.join(", "), JSON.stringify(summary));
      expect(violations.slice(0, 20)).toEqual([]);
      expect(summary.metFault).toBeGreaterThan(0);
    },
  );
});
