/**
 * The packages as tarballs, in a project that knows nothing of this workspace; and published to a registry, from
 * where another installs them by their names.
 */
import { storeChecks } from "@parley/core/testing";
import { execFile, spawn, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { copyFile, mkdir, mkdtemp, readdir, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { basename, join } from "node:path";
import { promisify } from "node:util";
import { afterAll, beforeAll, expect, it, vi } from "vitest";
import { freePort } from "../bench/FreePort.ts";
import { fencesOf, read, root, sectionOf } from "../test/Fences.ts";

const run = promisify(execFile);

const settings = {
  compilerOptions: {
    target: "ES2022",
    lib: ["ES2024", "DOM", "DOM.Iterable", "DOM.AsyncIterable"],
    types: ["node"],
    module: "NodeNext",
    strict: true,
    outDir: "out",
    rewriteRelativeImportExtensions: true,
  },
};

let project: string;
let files: ReadonlyArray<string>;
let wanted: ReadonlyArray<string>;
beforeAll(async () => {
  project = await mkdtemp(join(tmpdir(), "parley-tarballs-"));
  const tarballs = join(project, "tarballs");
  await mkdir(tarballs);
  const pnpm = ["--yes", "pnpm@12", "-r", "--filter", "./packages/*", "pack"];
  await run(join(root, "node_modules/.bin/tsc"), ["-b"], { cwd: root });
  await run("npx", [...pnpm, "--pack-destination", tarballs], { cwd: root });
  await writeFile(join(project, "package.json"), '{ "private": true, "type": "module" }');
  await writeFile(join(project, "tsconfig.json"), JSON.stringify(settings));
  for (const file of [
    "packages/store-memory/test/MemoryUnderTest.ts",
    ...["promise", "own-keys", "client", "mount", "kit"].map((name) => `examples/${name}.ts`),
  ]) {
    const text = read(file).replace("../packages/store-memory/test/", "./");
    await writeFile(join(project, basename(file)), text);
  }
  const packed = await readdir(tarballs);
  expect(packed).toHaveLength(5);
  const catalog = read("pnpm-workspace.yaml");
  wanted = ["effect", "typescript", '"@types/node"'].map((name) => {
    const version = new RegExp(`^  ${name}: (\\S+)$`, "m").exec(catalog)![1];
    return `${name.replaceAll('"', "")}@${version}`;
  });
  files = packed.map((name) => join(tarballs, name));
  await run("npm", ["install", "--no-audit", "--no-fund", ...files, ...wanted], { cwd: project });
  const compiler = join(project, "node_modules/.bin/tsc");
  const { stdout } = await run(compiler, ["-p", "."], { cwd: project }).catch((failed) => failed);
  // A package of others may lack a type of its own.
  const ours = /^(?!\s|node_modules\/(?!@parley\/))/;
  expect(stdout.split("\n").filter((line: string) => line !== "" && ours.test(line))).toEqual([]);
}, 300_000);
afterAll(() => rm(project, { recursive: true, force: true }));

const output = async (name: string, from = join(project, "out")) =>
  (await run("node", [join(from, `${name}.js`)])).stdout.trim();

/** What the kit prints when every check succeeds; of one that fails, more. */
const checks = storeChecks.map(({ name }) => name);

const registryConfig = `
storage: ./storage
auth: { htpasswd: { file: ./htpasswd } }
packages: { "@parley/*": { access: $all, publish: $all } }
log: { type: stdout, level: warn }
`;

/** Runs a registry that has nothing but what is published to it; npm knows it in that directory. */
const startRegistry = async (home: string): Promise<ChildProcess> => {
  const program = join(root, "system/registry");
  await run("npm", ["ci", "--no-audit", "--no-fund"], { cwd: program });
  const address = `127.0.0.1:${await freePort()}`;
  await writeFile(join(home, "config.yaml"), registryConfig);
  const verdaccio = join(program, "node_modules/verdaccio/bin/verdaccio");
  const child = spawn(
    process.execPath,
    [verdaccio, "--config", "config.yaml", "--listen", address],
    { cwd: home, stdio: ["ignore", "ignore", "inherit"] },
  );
  const npmrc = `@parley:registry=http://${address}/\n//${address}/:_authToken=anybody\n`;
  await writeFile(join(home, ".npmrc"), npmrc);
  const isUp = () => fetch(`http://${address}/-/ping`);
  await vi.waitFor(isUp, { timeout: 30_000, interval: 200 }).catch((cause) => {
    child.kill();
    throw cause;
  });
  return child;
};

it("are compiled, and their types are right", async () => {
  const section = fencesOf(sectionOf(read("docs/embedding.md"), "## Without Effect"));
  expect(await output("promise")).toBe(section.find(({ info }) => info === "text")!.text);
});

it("bring the conformance kit", async () => {
  expect((await output("kit")).split("\n")).toEqual(checks);
});

it("can be published, and the kit runs where they are installed by their names", async () => {
  const home = await mkdtemp(join(tmpdir(), "parley-registry-"));
  let registry: ChildProcess | undefined;
  try {
    await writeFile(join(home, "package.json"), '{ "private": true, "type": "module" }');
    registry = await startRegistry(home);
    const npm = (...args: ReadonlyArray<string>) => run("npm", args, { cwd: home });
    for (const file of files) await npm("publish", file, "--access", "public");
    const names = ["@parley/core", "@parley/store-memory"];
    await npm("install", "--no-audit", "--no-fund", ...names, wanted[0]!);
    for (const name of ["kit.js", "MemoryUnderTest.js"]) {
      await copyFile(join(project, "out", name), join(home, name));
    }
    expect((await output("kit", home)).split("\n")).toEqual(checks);
  } finally {
    if (registry?.exitCode === null && registry.kill()) await once(registry, "exit");
    await rm(home, { recursive: true, force: true });
  }
}, 180_000);
