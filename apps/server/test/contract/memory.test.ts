import { afterAll, beforeAll } from "vitest";
import { launch, type Running } from "./launch.ts";
import { contract } from "./suite.ts";

let running: Running;
beforeAll(async () => {
  running = await launch("memory");
});
afterAll(() => running?.stop());

contract(() => running.target);
