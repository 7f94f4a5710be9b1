import { test } from "vitest";
import { creates, kills, patience, seed } from "./Amount.ts";
import { killRound, victims } from "./KillRound.ts";

/** Within this time after a kill the service works again, in milliseconds. */
const recovery = 15_000;

// Much of a round is waiting.
test.concurrent.for(victims)(
  `kill -9 in the middle of ${creates} creates and asks loses nothing: %s (seed ${seed})`,
  { timeout: patience },
  async (victim, { expect }) => {
    const round = await killRound(victim, creates, kills, seed);
    console.log(victim, JSON.stringify({ ...round, log: undefined }));
    expect(round.violations, round.log).toEqual([]);
    expect(round.unanswered + round.unavailable, "requests that the kills met").toBeGreaterThan(0);
    expect(round.recovery).toHaveLength(kills);
    expect(Math.max(...round.recovery)).toBeLessThan(recovery);
  },
);
