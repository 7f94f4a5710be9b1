import { afterAll, beforeAll, expect, it } from "vitest";
import { startFlood } from "./Flood.ts";

let overload: Awaited<ReturnType<typeof startFlood>>;
beforeAll(async () => {
  overload = await startFlood(300);
});
afterAll(() => overload?.stop());

const common = { sockets: 3000, malformed: false };

it("a full server refuses asks before it parses their bodies or calls the model, and refuses none from a polite client", async () => {
  const before = overload.calls();
  const load = { ...common, rate: 5000, millis: 4000, malformed: true };
  const { details, flood, malformed, polite } = await overload.measure(load);
  for (const tally of [flood, malformed]) {
    expect(tally).toMatchObject({ failed: 0, ok: tally.sent - tally.refused });
    // The number of refusals depends on how much CPU time the load generator receives.
    expect(tally.refused).toBeGreaterThan(0);
  }
  for (const tally of [polite, details]) expect(tally).toMatchObject({ refused: 0, failed: 0 });
  expect(overload.calls() - before).toBe(flood.ok + polite.ok);
  // The server logs a few lines a minute, not one for each refusal.
  const lines = overload.server.log().match(/SERVICE_OVERLOADED|Overloaded/g) ?? [];
  expect(lines.length).toBeLessThan(60);
});

it("of three thousand simultaneous asks of a key, a server answers some and refuses the rest, but none of another key and none that follow", async () => {
  const burst = { ...common, rate: 10_000_000, millis: 1_000, most: 3_000 };
  const { details, flood, polite } = await overload.measure({
    ...burst,
    pid: overload.server.pid(),
  });
  expect(flood).toMatchObject({ failed: 0, ok: flood.sent - flood.refused });
  expect(flood.ok).toBeGreaterThanOrEqual(256);
  const after = await overload.measure({ ...common, rate: 20, millis: 2000 });
  for (const tally of [polite, details, after.flood, after.polite]) {
    expect(tally).toMatchObject({ refused: 0, failed: 0 });
  }
});
