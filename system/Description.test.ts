/**
 * Reads the API description with third-party tools. The tools are installed in `judges`, which is not part of the
 * workspace.
 */
import { mkdir, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { afterAll, beforeAll, expect, it } from "vitest";
import { launch, type TestServer } from "../apps/server/test/contract/launch.ts";
import { judge, judges } from "./programs/judges.ts";

let server: TestServer;
let text: string;
beforeAll(async () => {
  server = await launch("memory");
  text = await (await fetch(`${server.target.origin}/openapi.json`)).text();
});
afterAll(() => server?.stop());

it("Redocly finds no fault in the API description", async () => {
  expect(await judge(["lint.ts"], text)).toBe("");
  expect(await judge(["lint.ts"], text.replace('"servers"', '"x-servers"'))).not.toBe("");
});

const description = "clients/generated/openapi.json";
const generators = {
  "openapi-fetch": `openapi-typescript/bin/cli.js ${description} -o clients/generated/openapi-typescript.ts`,
  "hey-api": `@hey-api/openapi-ts/bin/run.js -i ${description} -o clients/generated/hey-api`,
};

it("clients from two generators are strictly typed, and can hold a conversation", async () => {
  const { key, origin } = server.target;
  await rm(join(judges, "clients/generated"), { recursive: true, force: true });
  await mkdir(join(judges, "clients/generated"));
  await writeFile(join(judges, description), text);
  for (const command of Object.values(generators))
    await judge(`node_modules/${command}`.split(" "));
  await judge(["node_modules/typescript/bin/tsc", "-p", "clients"]);
  for (const name of Object.keys(generators))
    await judge([`clients/out/${name}.js`], "", { ORIGIN: origin, KEY: key });
}, 120_000);
