/**
 * Runs rounds of random faults, one by default; `node faults/run.ts 20` runs twenty. Exits with 1 if a promise was
 * broken.
 */
import { faults, round, type FaultName } from "./Rounds.ts";

for (const signal of ["SIGINT", "SIGTERM"] as const) process.once(signal, () => process.exit(1));

const rounds = Number(process.argv[2] ?? 1);
for (let n = 1; n <= rounds; n++) {
  const store = (["file", "postgres"] as const)[(n - 1) % 2];
  const names = (Object.keys(faults) as Array<FaultName>).filter(
    (name) => faults[name].store === store,
  );
  const picks = Array.from({ length: 6 }, () => names[Math.floor(Math.random() * names.length)]!);
  const startedAt = Date.now();
  const { summary, violations } = await round(picks);
  console.log(
    `Round ${n}, ${Date.now() - startedAt} ms: ${picks.join(", ")}`,
    JSON.stringify(summary),
  );
  if (violations.length === 0) continue;
  process.exitCode = 1;
  console.error(violations.slice(0, 20).join("\n"));
}
