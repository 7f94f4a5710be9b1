/**
 * Runs the conformance kit in every runtime that Parley supports, on the memory store and on SQLite. Each program is
 * bundled with Parley, as an application would be, and imports every package that needs no runtime in particular.
 */
import { execFile } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { afterAll, beforeAll, expect, it } from "vitest";
import { bundle, runtimes, startWorker } from "./runtimes/Workerd.ts";

const folder = mkdtempSync(join(tmpdir(), "parley-runtimes-"));
afterAll(() => rmSync(folder, { recursive: true }));
beforeAll(() => bundle("process.ts", "node", folder), 60_000);

const bin = (name: string) => join(runtimes, "node_modules", name);
const passed = { exports: expect.any(Number), memory: [], sqlite: [] };

it.each([
  ["Node 22.13", bin("node-22/bin/node")],
  ["Node 24", process.execPath],
  ["Node 26", bin("node-26/bin/node")],
  ["Bun", bin(".bin/bun")],
  ["Deno", bin(".bin/deno"), "run", "--quiet", "--allow-all"],
])(
  "the conformance kit passes on %s",
  async (name, file, ...args) => {
    const run = [...args, join(folder, "process.mjs"), join(folder, `${name}.db`)];
    const { stdout } = await promisify(execFile)(file, run, { timeout: 170_000 });
    expect(JSON.parse(stdout)).toEqual(passed);
  },
  180_000,
);

it("the conformance kit passes in a Durable Object of workerd, whose modules import every package", async () => {
  await using worker = await startWorker("worker.ts", { OBJECTS: "Kit" });
  const response = await worker.fetch("/");
  expect(await response.json()).toEqual(passed);
}, 180_000);
