import { afterAll, beforeAll } from "vitest";
import { launch, type TestServer } from "./launch.ts";
import { contract } from "./suite.ts";

let testServer: TestServer;
beforeAll(async () => {
  testServer = await launch("memory");
});
afterAll(() => testServer?.stop());

contract(() => testServer.target);
