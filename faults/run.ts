/**
 * The kill rounds, for as long as wanted: `PARLEY_FAULTS_CREATES=1000 PARLEY_FAULTS_KILLS=4 node faults/run.ts`,
 * or only the named victims: `node faults/run.ts server both`. Ends with 1 if a promise was broken.
 */
import { creates, kills, seed } from "./Amount.ts";
import { killRound, victims, type Victim } from "./KillRound.ts";

for (const signal of ["SIGINT", "SIGTERM"] as const) process.once(signal, () => process.exit(1));

const named = process.argv.slice(2) as ReadonlyArray<Victim>;
console.log(`${creates} requests and ${kills} kills a round, seed ${seed}`);
for (const victim of named.length === 0 ? victims : named) {
  const began = Date.now();
  const { log, violations, ...numbers } = await killRound(victim, creates, kills, seed);
  console.log(`${victim}, ${Date.now() - began} ms: ${JSON.stringify(numbers)}`);
  if (violations.length === 0) continue;
  process.exitCode = 1;
  console.error([...violations, log].join("\n"));
}
