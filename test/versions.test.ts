import { expect, it } from "vitest";
import { globSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { version } from "../apps/server/src/Version.ts";

const root = join(import.meta.dirname, "..");
const read = (file: string) => readFileSync(join(root, file), "utf8");

it("all packages have the same version, which the command line prints", () => {
  const manifests = globSync(["package.json", "packages/*/package.json", "apps/*/package.json"], {
    cwd: root,
  });
  expect(manifests.length).toBeGreaterThan(6);
  const versions = new Set(manifests.map((file) => JSON.parse(read(file)).version));
  expect([...versions]).toEqual([version]);
});

it("an installation's lock file pins the tested versions, and names no registry", () => {
  const { dependencies } = JSON.parse(read("deploy/package.json"));
  expect(dependencies).toEqual({ "@parley/server": "file:parley-server.tgz" });
  const text = read("deploy/package-lock.json");
  expect(text.match(/"resolved": .*/g)).toEqual(['"resolved": "file:parley-server.tgz",']);
  const { packages } = JSON.parse(text);
  expect(packages[""]).toMatchObject({ dependencies });
});
