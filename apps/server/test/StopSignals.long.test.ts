/**
 * The ends of a server's terminal, of the script that started it and of the package manager above it.
 */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { afterEach, expect, it } from "vitest";
import { withoutSettings } from "./withoutSettings.ts";

const root = fileURLToPath(new URL("../../..", import.meta.url));
const serve = `'${process.execPath}' apps/server/src/main.ts serve`;
const start = "npx --yes pnpm@12 start";

const stops: Array<() => void> = [];
afterEach(() => stops.splice(0).forEach((stop) => stop()));

/** Runs a line of shell to the point where its server listens. */
const running = async (line: string, { terminal = false } = {}) => {
  const [program, ...args] = terminal
    ? ["script", "--quiet", "--return", "--command", line, "/dev/null"]
    : ["sh", "-c", `exec ${line}`];
  const child = spawn(program!, args, {
    cwd: root,
    detached: true,
    env: {
      ...withoutSettings(),
      SHELL: "/bin/sh",
      PARLEY_STORE: "memory",
      PARLEY_PORT: "0",
      PARLEY_MANAGEMENT_PORT: "0",
    },
    stdio: ["pipe", "pipe", "inherit"],
  });
  const lines: Array<string> = [];
  const reader = createInterface(child.stdout).on("line", (text) => lines.push(text));
  const printed = async (pattern: RegExp) => {
    for (;;) {
      const found = pattern.exec(lines.join("\n"));
      if (found !== null) return found;
      await once(reader, "line");
    }
  };
  const [, origin] = await printed(/Documentation +(http:\S+)\/docs/);
  const [, pid] = await printed(/process (\d+)/).catch(() => []);
  return { child, origin: origin!, pid, printed };
};

const isUp = (origin: string) =>
  fetch(`${origin}/docs`).then(
    ({ ok }) => ok,
    () => false,
  );
