import { afterAll, beforeAll, inject } from "vitest";
import { boundDatabase } from "../BoundDatabase.ts";
import { launch, type Running } from "./launch.ts";
import { contract } from "./suite.ts";

/** A server that row security binds. */
let running: Running;
beforeAll(async () => {
  const schema = `contract_${process.pid}_${Date.now()}`;
  const settings = await boundDatabase(inject("postgresUrl"), inject("roleUrls").bound, schema);
  running = await launch("postgres", settings);
});
afterAll(() => running?.stop());

contract(() => running.target);
