import { existsSync } from "node:fs";
import { join } from "node:path";
import { afterAll, beforeAll, expect, it } from "vitest";
import { launch, type Running } from "./launch.ts";
import { contract } from "./suite.ts";

const inServer = new URL("../../../../packages/store-sqlite/test/InServer.ts", import.meta.url);

let running: Running;
beforeAll(async () => {
  running = await launch("memory", { NODE_OPTIONS: `--import=${inServer}` });
});
afterAll(() => running?.stop());

it("keeps the chats in its file", () => {
  expect(existsSync(join(running.directory, "chats.sqlite"))).toBe(true);
});

contract(() => running.target);
