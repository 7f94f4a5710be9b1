/**
 * Measures Parley against the peer, in alternating rounds, and exits with 1 when a ratio is below its
 * target. See README.md.
 */
import { rmSync } from "node:fs";
import { loadavg } from "node:os";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { abort, stopAll } from "./harness/Children.ts";
import { startGenerator, type Measured } from "./harness/Load.ts";
import { startPostgres } from "./harness/Postgres.ts";
import { profileClock, topFunctions } from "./harness/Profile.ts";
import { line, median } from "./harness/Report.ts";
import { assertSame, loadOf, scenarios, type Scenario } from "./harness/Scenarios.ts";
import { startParley, startPeer, type Running } from "./harness/Servers.ts";

const connections = 32;
const leadMillis = 1000;
const setUpSeconds = 120;

const usage = `node run.ts [--rounds 1..50] [--seconds 1..60] [--only ${scenarios.map(({ name }) => name).join("|")}] [--profile] [--store postgres|memory]`;

const readOptions = () => {
  const { values } = parseArgs({
    options: {
      rounds: { type: "string", default: "5" },
      seconds: { type: "string", default: "4" },
      only: { type: "string" },
      profile: { type: "boolean", default: false },
      store: { type: "string", default: "postgres" },
    },
  });
  const { only, profile, store } = values;
  const rounds = Number(values.rounds);
  const seconds = Number(values.seconds);
  const chosen = scenarios.filter(({ name }) => only === undefined || name === only);
  const inRange = (n: number, most: number) => Number.isInteger(n) && n >= 1 && n <= most;
  if (
    !inRange(rounds, 50) ||
    !inRange(seconds, 60) ||
    chosen.length === 0 ||
    (store !== "postgres" && store !== "memory")
  ) {
    throw new Error(usage);
  }
  return { rounds, seconds, chosen, profile, store } as const;
};

const main = async (): Promise<boolean> => {
  const { chosen, profile, rounds, seconds, store } = readOptions();
  const needed = setUpSeconds + chosen.length * rounds * 2 * (seconds + 5);
  setTimeout(() => void abort(`Not done after ${needed} s.`), needed * 1000).unref();

  const [load] = loadavg();
  if (load! > 0.5) {
    console.log(
      `Other work is being done on this machine (load ${load!.toFixed(1)}): ratios will spread.`,
    );
  }
  const measure = startGenerator();
  const postgres = await startPostgres();
  const parleyDatabase = await postgres.createDatabase("parley");

  const round = async (scenario: Scenario, server: Running) => {
    const load = await loadOf(scenario, server);
    await postgres.checkpoint();
    return measure({ ...load, connections, leadMillis, millis: seconds * 1000 });
  };

  const checkStore = async (): Promise<void> => {
    if (store === "postgres" && !(await postgres.hasTables(parleyDatabase))) {
      throw new Error("Parley keeps nothing in PostgreSQL, so there is nothing to compare.");
    }
  };

  if (profile) {
    for (const scenario of chosen) {
      const file = fileURLToPath(new URL(`${scenario.name}.cpuprofile`, import.meta.url));
      rmSync(file, { force: true });
      const parley = await startParley({ store, databaseUrl: parleyDatabase, profile: file });
      await checkStore();
      await postgres.settle([parleyDatabase]);
      const from = profileClock();
      const measured = await round(scenario, parley);
      const to = profileClock();
      await parley.stop();
      console.log(`\n${scenario.name}, profiled\n${line("parley", [measured])}`);
      for (const text of topFunctions(file, from, to, 30)) console.log(`  ${text}`);
      console.log(`  Whole profile: ${file}`);
    }
    return true;
  }

  const parley = await startParley({ store, databaseUrl: parleyDatabase, profile: null });
  await checkStore();
  const peerDatabase = await postgres.createDatabase("peer");
  const peer = await startPeer(peerDatabase, parley);
  await postgres.settle([parleyDatabase, peerDatabase]);
  console.log(
    `PostgreSQL ${postgres.version}, Node ${process.version}, ${connections} connections, ` +
      `${rounds} rounds of ${seconds} s; Parley's store: ${store}`,
  );

  let met = true;
  let busiest = 0;
  for (const scenario of chosen) {
    const { name, target } = scenario;
    const [ours, theirs] = [await loadOf(scenario, parley), await loadOf(scenario, peer)];
    assertSame(name, ours.expected, theirs.expected);
    console.log(`\n${name}`);
    const results = new Map<Running, Array<Measured>>([
      [peer, []],
      [parley, []],
    ]);
    for (let i = 0; i < rounds; i++) {
      for (const server of i % 2 === 0 ? [peer, parley] : [parley, peer]) {
        const measured = await round(scenario, server);
        results.get(server)!.push(measured);
        busiest = Math.max(busiest, measured.generatorBusy);
      }
    }
    for (const [server, measured] of results) console.log(line(server.name, measured));
    const perSecond = (server: Running) =>
      results.get(server)!.map(({ requestsPerSecond }) => requestsPerSecond);
    const ratio = median(perSecond(parley)) / median(perSecond(peer));
    const byRound = perSecond(parley).map((value, i) => value / perSecond(peer)[i]!);
    const verdict = ratio >= target ? "met" : "MISSED";
    if (ratio < target) met = false;
    console.log(
      `  ratio   ${ratio.toFixed(2).padStart(7)}  (rounds ${Math.min(...byRound).toFixed(2)}` +
        ` to ${Math.max(...byRound).toFixed(2)})   target ${target}: ${verdict}`,
    );
  }
  console.log(`\nThe generator used at most ${(100 * busiest).toFixed(0)} % of a core.`);
  return met;
};

try {
  const met = await main();
  await stopAll();
  process.exit(met ? 0 : 1);
} catch (error) {
  await abort(error instanceof Error ? error.message : String(error));
}
