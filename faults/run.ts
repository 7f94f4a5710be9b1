/**
 * The kill rounds, for as long as wanted: `PARLEY_FAULTS_CREATES=1000 PARLEY_FAULTS_KILLS=4 node faults/run.ts`,
 * or only the named victims: `node faults/run.ts server both`. And what one chatbot can learn of another:
 * `PARLEY_FAULTS_PROBES=20000 node faults/run.ts probe`. Ends with 1 if a promise was broken.
 */
import { creates, kills, probes, seed } from "./Amount.ts";
import { killRound, victims, type Victim } from "./KillRound.ts";
import { probe } from "./Probe.ts";

for (const signal of ["SIGINT", "SIGTERM"] as const) process.once(signal, () => process.exit(1));

const report = async (
  name: string,
  round: Promise<{ readonly violations: ReadonlyArray<string>; readonly log?: string }>,
) => {
  const began = Date.now();
  const { log, violations, ...numbers } = await round;
  console.log(`${name}, ${Date.now() - began} ms: ${JSON.stringify(numbers)}`);
  if (violations.length === 0) return;
  process.exitCode = 1;
  console.error([...violations, log ?? ""].join("\n"));
};

const rounds = [...victims, "probe"] as const;
const named = process.argv.slice(2) as ReadonlyArray<Victim | "probe">;
console.log(`${creates} requests and ${kills} kills a round, ${probes} probes, seed ${seed}`);
for (const round of named.length === 0 ? rounds : named) {
  if (round !== "probe") {
    await report(round, killRound(round, creates, kills, seed));
    continue;
  }
  for (const rowSecurity of [false, true]) {
    const round = probe(probes, seed, { rowSecurity }).then(({ found, ...probed }) => ({
      ...probed,
      foundFromWithin: found.length,
    }));
    await report(rowSecurity ? "probe with row security" : "probe", round);
  }
}
