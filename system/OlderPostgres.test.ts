/**
 * The PostgreSQL store on the oldest PostgreSQL that it supports: the kit, the migration, the plans and the tenants.
 */
import { execFile } from "node:child_process";
import { join } from "node:path";
import { promisify } from "node:util";
import { expect, it } from "vitest";
import { withoutSettings } from "../apps/server/test/withoutSettings.ts";
import { root } from "../test/docs/Fences.ts";

const run = promisify(execFile);

it("the tests of the kit, the migration, the plans and the tenants pass on PostgreSQL 15", async () => {
  const older = join(root, "system/older-postgres");
  await run("npm", ["ci", "--no-audit", "--no-fund"], { cwd: older });
  const { stdout } = await run(
    join(root, "node_modules/.bin/vitest"),
    ["run", "--config", join(older, "vitest.config.ts"), "--silent", "--no-color"],
    {
      cwd: root,
      env: { ...withoutSettings(), PARLEY_TEST_POSTGRES: join(older, "package.json") },
      maxBuffer: 2 ** 26,
    },
  ).catch(({ stderr, stdout }) => {
    throw new Error(`${stdout}\n${stderr}`);
  });
  const [, count] = /Tests +(\d+) passed/.exec(stdout)!;
  expect(Number(count)).toBeGreaterThan(100);
}, 1_200_000);
