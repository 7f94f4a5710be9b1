import { expect, it } from "vitest";
import { globSync, readFileSync } from "node:fs";
import { join } from "node:path";

const root = join(import.meta.dirname, "..");
const read = (file: string) => readFileSync(join(root, file), "utf8");

it("all packages have one version, which the command line tells", () => {
  const manifests = globSync(["package.json", "packages/*/package.json", "apps/*/package.json"], {
    cwd: root,
  });
  expect(manifests).toHaveLength(7);
  const versions = new Set(manifests.map((file) => JSON.parse(read(file)).version));
  const [, told] = /version = "(.*)"/.exec(read("apps/server/src/Version.ts")) ?? [];
  expect([...versions]).toEqual([told]);
});
