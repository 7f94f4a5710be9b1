/**
 * The packages as tarballs, installed in a project that knows nothing of this workspace.
 */
import { storeChecks } from "@parley/core/testing";
import { execFile } from "node:child_process";
import { mkdir, mkdtemp, readdir, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { basename, join } from "node:path";
import { promisify } from "node:util";
import { afterAll, beforeAll, expect, it } from "vitest";
import { fencesOf, read, root, sectionOf } from "../test/docs/Fences.ts";

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

const output = async (name: string) =>
  (await run("node", [join(project, "out", `${name}.js`)])).stdout.trim();

/** What the kit prints when every check succeeds; of one that fails, more. */
const checks = storeChecks.map(({ name }) => name);

it("are compiled, and their types are right", async () => {
  const section = fencesOf(sectionOf(read("docs/embedding.md"), "## Without Effect"));
  expect(await output("promise")).toBe(section.find(({ info }) => info === "text")!.text);
});

it("bring the conformance kit", async () => {
  expect((await output("kit")).split("\n")).toEqual(checks);
});
