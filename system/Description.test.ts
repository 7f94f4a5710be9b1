/**
 * The API description as other people's tools read it. They are installed in `judges`, which is no member of the
 * workspace.
 */
import { execFile } from "node:child_process";
import { existsSync } from "node:fs";
import { join } from "node:path";
import { promisify } from "node:util";
import { afterAll, beforeAll, expect, it } from "vitest";
import { launch, type Running } from "../apps/server/test/contract/launch.ts";

const judges = join(import.meta.dirname, "judges");

let server: Running;
let origin: string;
beforeAll(async () => {
  if (!existsSync(join(judges, "node_modules"))) {
    throw new Error("their packages are not installed: npm ci --prefix system/judges");
  }
  server = await launch("memory");
  ({ origin } = new URL(server.target.baseUrl));
});
afterAll(() => server?.stop());

/** Runs a program in the folder; a rejection has its output. */
const run = async (program: ReadonlyArray<string>, env: object = {}, input = "") => {
  const running = promisify(execFile)(process.execPath, program, {
    cwd: judges,
    env: { ...process.env, ...env },
  });
  running.child.stdin!.end(input);
  return running.then(
    ({ stdout }) => stdout,
    ({ stderr, stdout }) => Promise.reject(new Error(`${stdout}${stderr}`)),
  );
};

it("Redocly finds nothing", async () => {
  const description = await (await fetch(`${origin}/openapi.json`)).text();
  expect(await run(["lint.ts"], {}, description)).toBe("");
  expect(await run(["lint.ts"], {}, description.replace('"servers"', '"x-servers"'))).not.toBe("");
});

it("a client of openapi-typescript type-checks, and goes through the flow of section 1", async () => {
  const generate = "node_modules/openapi-typescript/bin/cli.js";
  await run([generate, `${origin}/openapi.json`, "--output", "openapi.d.ts"]);
  await run(["node_modules/typescript/bin/tsc"]);
  await run(["flow.ts"], { ORIGIN: origin, KEY: server.target.key });
});
