import { afterAll, beforeAll, inject } from "vitest";
import { boundDatabase } from "../BoundDatabase.ts";
import { launch, type TestServer } from "./launch.ts";
import { contract } from "./suite.ts";

/** A server to which row security applies. */
let testServer: TestServer;
beforeAll(async () => {
  const schema = `contract_${process.pid}_${Date.now()}`;
  const settings = await boundDatabase(inject("postgresUrl"), inject("roleUrls").bound, schema);
  testServer = await launch("postgres", settings);
});
afterAll(() => testServer?.stop());

contract(() => testServer.target);
