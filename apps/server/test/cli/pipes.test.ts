/**
 * Commands and servers whose standard output has no reader any more, or that get a signal meant for another program.
 */
import { once } from "node:events";
import { expect, it } from "vitest";
import { freePort } from "../FreePort.ts";
import { temporaryFolder } from "../TemporaryFolder.ts";
import { main, start } from "./run.ts";

const settings = {
  PARLEY_STORE: "memory",
  PARLEY_DATA_DIR: temporaryFolder(),
  PARLEY_PORT: "0",
  PARLEY_MANAGEMENT_PORT: "0",
  PARLEY_DRAIN_DELAY: "0 seconds",
};

it("a command whose output has no reader ends without a message", async () => {
  const { child, exit, output } = start(["--help"]);
  child.stdout!.destroy();
  expect([await exit, output.stderr]).toEqual([141, ""]);
});

it("a server whose log has no reader goes on", async () => {
  const port = await freePort();
  const more = { PARLEY_PORT: String(port), PARLEY_LOG_REQUESTS: "true" };
  const { child } = start(["serve"], { ...settings, ...more });
  await once(child.stdout!, "data");
  child.stdout!.destroy();
  child.stderr!.destroy();
  const status = async () => (await fetch(`http://127.0.0.1:${port}/api/details`)).status;
  await expect.poll(() => status().catch(() => 0), { timeout: 20_000 }).toBe(401);
  for (let n = 0; n < 5; n++) expect(await status()).toBe(401);
  child.kill("SIGTERM");
  expect(await once(child, "exit")).toEqual([0, null]);
});

it("the installed command opens no debugger when it gets a SIGUSR1", async () => {
  const program = main.replace("main.ts", "PublishedCommand.ts");
  const { child, exit, output } = start(["serve"], settings, [process.execPath, program]);
  await once(child.stdout!, "data");
  child.kill("SIGUSR1");
  await new Promise((resolve) => setTimeout(resolve, 500));
  child.kill("SIGTERM");
  expect([await exit, output.stderr]).toEqual([0, ""]);
});
