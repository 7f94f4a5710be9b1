import { afterAll, beforeAll, inject } from "vitest";
import { launch, type TestServer } from "./launch.ts";
import { contract } from "./suite.ts";

let testServer: TestServer;
beforeAll(async () => {
  testServer = await launch("postgres", {
    DATABASE_URL: inject("postgresUrl"),
    PARLEY_SCHEMA: `contract_${process.pid}`,
  });
});
afterAll(() => testServer?.stop());

contract(() => testServer.target);
