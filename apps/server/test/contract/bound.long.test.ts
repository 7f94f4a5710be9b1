import { afterAll, beforeAll } from "vitest";
import { launch, type Running } from "./launch.ts";
import { contract } from "./suite.ts";

/** A server that row security binds. */
let running: Running;
beforeAll(async () => {
  running = await launch("embedded", { PARLEY_ROW_SECURITY: "true" });
});
afterAll(() => running?.stop());

contract(() => running.target);
