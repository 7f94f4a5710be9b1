/**
 * THIRD-PARTY-NOTICES.md: every package that the product needs at run time, with its licence.
 */
import { existsSync, readdirSync, readFileSync, realpathSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { expect, it } from "vitest";
import { read, root, table } from "./docs/Fences.ts";

interface Manifest {
  readonly name: string;
  readonly license: string;
  readonly dependencies?: Readonly<Record<string, string>>;
  readonly devDependencies?: Readonly<Record<string, string>>;
  readonly optionalDependencies?: Readonly<Record<string, string>>;
  readonly peerDependencies?: Readonly<Record<string, string>>;
}

const products = readdirSync(join(root, "packages"))
  .map((name) => join(root, "packages", name))
  .concat(join(root, "apps/server"));

/** Where Node finds a package from a folder; `undefined` if an optional package is not installed. */
const folderOf = (name: string, from: string): string | undefined => {
  const folder = join(from, "node_modules", name);
  if (existsSync(folder)) return realpathSync(folder);
  return dirname(from) === from ? undefined : folderOf(name, dirname(from));
};

const licences = new Map<string, string>();
const seen = new Set<string>();
const visit = (folder: string): void => {
  if (seen.has(folder)) return;
  seen.add(folder);
  const manifest: Manifest = JSON.parse(readFileSync(join(folder, "package.json"), "utf8"));
  const { dependencies, license, name, optionalDependencies, peerDependencies } = manifest;
  // The server's bundle contains its development dependencies, except the bundler.
  const { rolldown: _, ...bundled } = manifest.devDependencies ?? {};
  if (!name.startsWith("@parley/")) licences.set(name, license);
  for (const name of Object.keys({
    ...dependencies,
    ...optionalDependencies,
    ...peerDependencies,
    ...(manifest.name === "@parley/server" && bundled),
  })) {
    const dependencyFolder = folderOf(name, folder);
    if (dependencyFolder !== undefined) visit(dependencyFolder);
  }
};
products.forEach(visit);
// Bundled into the playground's page.
for (const name of ["@preact/signals", "preact"]) {
  visit(folderOf(name, join(root, "packages/pages"))!);
}

const rows = [...licences]
  .toSorted(([a], [b]) => (a < b ? -1 : 1))
  .map(([name, licence]) => [`\`${name}\``, licence]);

const page = `# Third-party notices

Parley needs these packages at run time. npm installs each of them with the text of its license; the server's package
contains code of some, with the texts in its \`dist/THIRD-PARTY-NOTICES.md\`.

${table(["package", "license"], rows)}

The package \`node\`, which installs Node.js (MIT and others), runs the server from a checkout.
`;

it("THIRD-PARTY-NOTICES.md lists the run-time dependencies (UPDATE_DOCS=1 writes it)", () => {
  if (process.env["UPDATE_DOCS"] === "1") {
    writeFileSync(join(root, "THIRD-PARTY-NOTICES.md"), page);
  }
  expect(read("THIRD-PARTY-NOTICES.md")).toBe(page);
});

it("every package ships the licence, which pnpm takes from the root", () => {
  for (const folder of products) {
    const manifest = JSON.parse(readFileSync(join(folder, "package.json"), "utf8"));
    expect([manifest.license, manifest.files]).toEqual([
      "MIT",
      expect.arrayContaining(["LICENSE"]),
    ]);
  }
  expect(read("LICENSE")).toContain("Copyright (c) 2026 Parley contributors");
});
