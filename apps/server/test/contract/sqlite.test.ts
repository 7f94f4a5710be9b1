import { existsSync } from "node:fs";
import { join } from "node:path";
import { afterAll, beforeAll, expect, it } from "vitest";
import { launch, type TestServer } from "./launch.ts";
import { contract } from "./suite.ts";

const inServer = new URL("../../../../packages/store-sqlite/test/InServer.ts", import.meta.url);

let testServer: TestServer;
beforeAll(async () => {
  testServer = await launch("memory", { NODE_OPTIONS: `--import=${inServer}` });
});
afterAll(() => testServer?.stop());

it("the server keeps its chats in a SQLite file", () => {
  expect(existsSync(join(testServer.directory, "chats.sqlite"))).toBe(true);
});

contract(() => testServer.target);
