import { expect, it } from "vitest";
import { globSync, readFileSync } from "node:fs";
import { dirname, join } from "node:path";
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

it("packages that import unstable modules of Effect accept only its tested minor version", () => {
  const minor = /^  effect: (\d+\.\d+)\./m.exec(read("pnpm-workspace.yaml"))![1];
  for (const folder of globSync("packages/*", { cwd: root })) {
    const imports = globSync(`${folder}/src/**/*.ts`, { cwd: root }).flatMap((file) =>
      [...read(file).matchAll(/from "(@?effect\/[\w-]+)/g)].map(([, name]) => name),
    );
    const isUnstable = imports.some((name) => name !== "effect/testing");
    const { peerDependencies = {} } = JSON.parse(read(`${folder}/package.json`));
    for (const [name, range] of Object.entries<string>(peerDependencies))
      if (/^@?effect/.test(name))
        expect(range, folder).toMatch(isUnstable ? `~${minor}.` : `^${minor}.`);
  }
});

it("every package names its folder in the repository, and before the first release no page installs it by name", () => {
  for (const file of globSync("{packages,apps}/*/package.json", { cwd: root }))
    expect(JSON.parse(read(file)).repository).toEqual({ type: "git", directory: dirname(file) });
  expect(read("CHANGELOG.md")).toContain("It has not been released yet.");
  for (const file of globSync(["*.md", "docs/**/*.md", "{packages,apps}/*/README.md"], {
    cwd: root,
  }))
    if (file !== "RELEASING.md")
      expect(read(file), file).not.toMatch(/(install|add|npx) @parley\//);
});
