/**
 * Measures a server that receives more asks than it can answer. `node faults/overload.ts` prints a table, and exits
 * with 1 if a limit is exceeded. Run it on an otherwise idle machine with at least two cores. Options: `--model 300`
 * (milliseconds that the model takes), `--seconds 10` (the duration of the loads that are judged).
 */
import { parseArgs } from "node:util";
import { setTimeout as sleep } from "node:timers/promises";
import { startFlood } from "./Flood.ts";
import type { Report } from "./FloodLoad.ts";

const { values } = parseArgs({
  options: {
    model: { type: "string", default: "300" },
    seconds: { type: "string", default: "10" },
  },
});
const model = Number(values.model);
const seconds = Number(values.seconds);
if (!(model >= 0 && seconds >= 1 && seconds <= 60)) {
  throw new Error("See the first lines of faults/overload.ts for its options.");
}

for (const signal of ["SIGINT", "SIGTERM"] as const) process.once(signal, () => process.exit(1));

const percentile = (millis: ReadonlyArray<number>, share: number): number => {
  const sorted = millis.toSorted((a, b) => a - b);
  return Math.round(sorted[Math.floor(sorted.length * share)] ?? 0);
};

const { measure, megabytes, stop } = await startFlood(model);
/** Runs a load and waits for its last response. */
const load = async (rate: number, duration = seconds) => {
  const millis = duration * 1000;
  const report = await measure({ rate, millis, sockets: 3000, malformed: false });
  await sleep(1000);
  return { report, goodput: (report.flood.ok + report.polite.ok) / duration };
};

const failures = ({ details, flood, polite }: Report): number =>
  [details, flood, polite].reduce((sum, { failed, unsent }) => sum + failed + unsent, 0);

const row = (name: string, rate: number, { report, goodput }: Awaited<ReturnType<typeof load>>) => {
  const { details, flood, polite } = report;
  const cells = [
    name,
    `${Math.round(rate)}/s`,
    `${Math.round(goodput)}/s`,
    `${percentile(flood.okMillis, 0.5)} / ${percentile(flood.okMillis, 0.99)}`,
    `${flood.refused}`,
    `${percentile(flood.refusedMillis, 0.5)} / ${percentile(flood.refusedMillis, 0.99)}`,
    `${failures(report)}`,
    `${polite.ok} of ${polite.sent + polite.unsent}`,
    `${percentile(polite.okMillis, 0.99)}`,
    `${percentile(details.okMillis, 0.99)}`,
    `${megabytes()}`,
  ];
  console.log(`| ${cells.join(" | ")} |`);
};

const exceededLimits: Array<string> = [];
const limit = (what: string, value: number, isMet: boolean): void => {
  if (!isMet) exceededLimits.push(`${what}: ${Math.round(100 * value) / 100}`);
};
/** Compares a load with the peak. There are more limits if the model takes 300 ms. */
const judge = (
  times: 2 | 5,
  peak: { goodput: number; p99: number },
  report: Report,
  goodput: number,
) => {
  const { flood, polite } = report;
  const at = `at ${times} times the peak`;
  const share = goodput / peak.goodput;
  limit(
    `polite asks that were not answered ${at}`,
    polite.sent + polite.unsent - polite.ok,
    polite.ok === polite.sent + polite.unsent,
  );
  limit(`requests that failed ${at}`, failures(report), failures(report) === 0);
  if (model !== 300) return limit(`goodput ${at}`, share, share >= 0.6);
  limit(`goodput ${at}`, share, share >= (times === 2 ? 0.85 : 0.7));
  const refusalP50 = percentile(flood.refusedMillis, 0.5);
  limit(`p50 of refusals ${at}, in ms`, refusalP50, refusalP50 <= 60);
  const slower = percentile(polite.okMillis, 0.99) / peak.p99;
  limit(`p99 of a polite key's asks ${at}, as a multiple of that at the peak`, slower, slower <= 2);
};

let saturated: Awaited<ReturnType<typeof load>> | null = null;
try {
  // A warm-up that compiles code and fills caches.
  await load(50, 3);
  console.log(`A model of ${model} ms; times in ms`);
  console.log(
    "| load | asks | answered | p50 / p99 | refused | p50 / p99 | failed | polite | p99 | details p99 | MB |",
  );
  console.log("|---|---|---|---|---|---|---|---|---|---|---|");
  // The peak is the highest goodput at which nothing is refused and the server keeps up.
  let peak = { rate: 0, goodput: 0, p99: 0 };
  for (let rate = 100; ; rate *= 1.15) {
    const result = await load(rate, Math.max(5, (2.5 * model) / 1000));
    const { goodput, report } = result;
    if (report.flood.refused > 0 || goodput < 0.9 * rate) break;
    peak = { rate, goodput, p99: percentile(report.flood.okMillis, 0.99) };
    saturated = result;
  }
  if (saturated === null) throw new Error("The server cannot answer 100 asks a second.");
  row("the peak", peak.rate, saturated);
  for (const times of [2, 5] as const) {
    const rate = times * peak.goodput;
    const result = await load(rate);
    row(`${times} times`, rate, result);
    judge(times, peak, result.report, result.goodput);
  }
  const after = await load(peak.goodput / 2, 3);
  row("a second later", peak.goodput / 2, after);
  limit("refused a second later", after.report.flood.refused, after.report.flood.refused === 0);
  limit("memory, in MB", megabytes(), megabytes() <= 600);
} finally {
  await stop();
}
for (const line of exceededLimits) console.error(`Exceeded: ${line}`);
process.exit(exceededLimits.length === 0 ? 0 : 1);
