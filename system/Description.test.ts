/**
 * Reads the API description with third-party tools. The tools are installed in `judges`, which is not part of the
 * workspace.
 */
import { execFile } from "node:child_process";
import { existsSync } from "node:fs";
import { mkdir, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { promisify } from "node:util";
import { afterAll, beforeAll, expect, it } from "vitest";
import { launch, type TestServer } from "../apps/server/test/contract/launch.ts";

const judges = join(import.meta.dirname, "judges");

let server: TestServer;
let origin: string;
beforeAll(async () => {
  if (!existsSync(join(judges, "node_modules"))) {
    throw new Error(
      "the packages of system/judges are not installed: npm ci --prefix system/judges",
    );
  }
  server = await launch("memory");
  ({ origin } = new URL(server.target.baseUrl));
});
afterAll(() => server?.stop());

/** Runs a program in `judges`. If the program fails, the error contains its output. */
const run = async (program: ReadonlyArray<string>, env: object = {}, input = "") => {
  const execution = promisify(execFile)(process.execPath, program, {
    cwd: judges,
    env: { ...process.env, ...env },
  });
  execution.child.stdin!.end(input);
  return execution.then(
    ({ stdout }) => stdout,
    ({ stderr, stdout }) => Promise.reject(new Error(`${stdout}${stderr}`)),
  );
};

it("Redocly finds no fault in the API description", async () => {
  const description = await (await fetch(`${origin}/openapi.json`)).text();
  expect(await run(["lint.ts"], {}, description)).toBe("");
  expect(await run(["lint.ts"], {}, description.replace('"servers"', '"x-servers"'))).not.toBe("");
});

const description = "clients/generated/openapi.json";
const generators = {
  "openapi-fetch": [
    "openapi-typescript/bin/cli.js",
    description,
    "-o",
    "clients/generated/openapi-typescript.ts",
  ],
  "hey-api": [
    "@hey-api/openapi-ts/bin/run.js",
    "-i",
    description,
    "-o",
    "clients/generated/hey-api",
  ],
};

it("clients from two generators are strictly typed, and can hold a conversation", async () => {
  await rm(join(judges, "clients/generated"), { recursive: true, force: true });
  await mkdir(join(judges, "clients/generated"));
  const response = await fetch(`${origin}/openapi.json`);
  await writeFile(join(judges, description), await response.text());
  for (const [program, ...options] of Object.values(generators))
    await run([`node_modules/${program}`, ...options]);
  await run(["node_modules/typescript/bin/tsc", "-p", "clients"]);
  for (const name of Object.keys(generators))
    await run([`clients/out/${name}.js`], { ORIGIN: origin, KEY: server.target.key });
}, 120_000);
