import { afterAll, beforeAll, inject } from "vitest";
import { launch, type Running } from "./launch.ts";
import { contract } from "./suite.ts";

/** A server that row security binds. */
let running: Running;
beforeAll(async () => {
  running = await launch("postgres", {
    DATABASE_URL: inject("roleUrls").bound,
    PARLEY_MIGRATION_URL: inject("postgresUrl"),
    PARLEY_SCHEMA: `contract_bound_${process.pid}`,
    PARLEY_ROW_SECURITY: "true",
  });
});
afterAll(() => running?.stop());

contract(() => running.target);
