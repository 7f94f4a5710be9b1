import { inject } from "vitest";
import { launchForTests } from "./launch.ts";
import { contract } from "./suite.ts";

const testServer = launchForTests("postgres", {
  DATABASE_URL: inject("postgresUrl"),
  PARLEY_SCHEMA: `contract_${process.pid}`,
});
contract(() => testServer().target);
