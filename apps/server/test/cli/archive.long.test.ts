import { spawn } from "node:child_process";
import { once } from "node:events";
import { fileURLToPath } from "node:url";
import { expect, inject, it } from "vitest";

const archive = fileURLToPath(new URL("../../../../bench/archive.ts", import.meta.url));

it("an import or an export of 100,000 entries uses at most 200 MB of memory", async () => {
  const child = spawn(process.execPath, [archive, "--entries", "100000"], {
    env: { ...process.env, BENCH_DATABASE_URL: inject("postgresUrl") },
    stdio: "pipe",
  });
  let output = "";
  for (const stream of [child.stdout, child.stderr]) stream.on("data", (data) => (output += data));
  const [code] = await once(child, "close");
  expect(output).toMatch(/^import +\d+ MB .*\nexport +\d+ MB .*\n$/);
  expect(code).toBe(0);
}, 120_000);
