/**
 * Runs the contract's suites against a server that implements both interfaces:
 *
 *     PARLEY_KEY=… PARLEY_OTHER_KEY=… pnpm contract http://localhost:8080
 *
 * `PARLEY_KEY` has all scopes, and its chatbot has a hello message; `PARLEY_OTHER_KEY` is another chatbot's. `PARLEY_BASE`
 * and `PARLEY_ASK` are the base paths, `/api` and `/ask` by default. Further arguments go to vitest, such as
 * `-t details`. The suites create chats, and delete some of them.
 */
import { spawnSync } from "node:child_process";

const [url, ...args] = process.argv.slice(2);
if (!URL.canParse(url ?? "") || !process.env["PARLEY_KEY"] || !process.env["PARLEY_OTHER_KEY"]) {
  console.error("usage: PARLEY_KEY=… PARLEY_OTHER_KEY=… pnpm contract URL");
  process.exit(2);
}
const config = `${import.meta.dirname}/vitest.config.ts`;
const { status } = spawnSync("vitest", ["run", "--config", config, ...args], {
  stdio: "inherit",
  env: { ...process.env, PARLEY_URL: url },
});
process.exit(status ?? 1);
