/**
 * Runs a command as an operator does, in its own process.
 */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { fileURLToPath } from "node:url";
import { withoutSettings } from "../withoutSettings.ts";

export const main = fileURLToPath(new URL("../../src/main.ts", import.meta.url));

export interface CommandResult {
  readonly code: number | null;
  readonly stdout: string;
  readonly stderr: string;
}

export const run = async (
  args: ReadonlyArray<string>,
  settings: Readonly<Record<string, string>>,
  input = "",
): Promise<CommandResult> => {
  const child = spawn(process.execPath, [main, ...args], {
    env: { ...withoutSettings(), ...settings },
    stdio: "pipe",
  });
  let stdout = "";
  let stderr = "";
  child.stdout.on("data", (data) => (stdout += data));
  child.stderr.on("data", (data) => (stderr += data));
  child.stdin.end(input);
  const [code] = await once(child, "close");
  return { code, stdout, stderr };
};
