/**
 * What a server does when its terminal closes, or when the script or package manager that started it ends.
 */
import { fileURLToPath } from "node:url";
import { afterEach, expect, it, vi } from "vitest";
import { temporaryFolder } from "./TemporaryFolder.ts";
import { start } from "./cli/run.ts";

const root = fileURLToPath(new URL("../../..", import.meta.url));
const serve = `'${process.execPath}' apps/server/src/main.ts serve`;
const startScript = "npx --yes pnpm@12 start";

const directory = temporaryFolder();

/** The servers' process groups, to kill the servers that a failed test leaves running. */
const groups: Array<number> = [];
afterEach(() => {
  for (const group of groups.splice(0)) {
    try {
      process.kill(-group, "SIGKILL");
    } catch {
      // The group has ended.
    }
  }
});

/** Runs a program in its own process group, and resolves when the server that it starts is listening. */
const runServer = async (program: string, ...args: ReadonlyArray<string>) => {
  const settings = {
    SHELL: "/bin/sh",
    PARLEY_STORE: "memory",
    PARLEY_DATA_DIR: directory,
    PARLEY_PORT: "0",
    PARLEY_MANAGEMENT_PORT: "0",
  };
  const { child, untilPrinted } = start(args, settings, [program], { cwd: root, detached: true });
  groups.push(child.pid!);
  const [, origin] = await untilPrinted(/general(?:=|":")(\S+?)\/api/);
  const isUp = () =>
    fetch(`${origin}/docs`).then(
      ({ ok }) => ok,
      () => false,
    );
  expect(await isUp()).toBe(true);
  return { child, isUp, untilPrinted };
};

/** Runs a command line on a new terminal, which closes when `script` is killed. */
const onTerminal = (line: string) =>
  runServer("script", "--quiet", "--flush", "--command", line, "/dev/null");

const untilDown = (isUp: () => Promise<boolean>) =>
  vi.waitFor(async () => expect(await isUp()).toBe(false), { timeout: 20_000, interval: 200 });

it("a SIGTERM to npx stops the server that npx started", async () => {
  const { child, isUp } = await runServer("npx", ...startScript.split(" ").slice(1));
  child.kill("SIGTERM");
  await untilDown(isUp);
});

it.each([startScript, serve])("closing a terminal stops the server in it: %s", async (line) => {
  const { child, isUp } = await onTerminal(line);
  child.kill("SIGKILL");
  await untilDown(isUp);
});

it("a SIGHUP makes a server without a terminal reload its documents", async () => {
  const { child, isUp, untilPrinted } = await runServer("sh", "-c", `exec ${serve}`);
  child.kill("SIGHUP");
  await untilPrinted(/Reloaded the documents in (.*)/);
  expect(await isUp()).toBe(true);
});

it("a server that a script starts in the background outlives the script", async () => {
  const { isUp, untilPrinted } = await onTerminal(
    `sh -c "${serve} & sleep 5"; echo over; sleep 60`,
  );
  await untilPrinted(/(over)/);
  await new Promise((resolve) => setTimeout(resolve, 2000));
  expect(await isUp()).toBe(true);
});
