/**
 * Runs commands and servers as an operator does, in their own processes.
 */
import { spawn, type SpawnOptions } from "node:child_process";
import { once } from "node:events";
import { fileURLToPath } from "node:url";
import { withoutSettings } from "../withoutSettings.ts";

export const main = fileURLToPath(new URL("../../src/main.ts", import.meta.url));

type Settings = Readonly<Record<string, string>>;

export interface CommandResult {
  readonly code: number | null;
  readonly stdout: string;
  readonly stderr: string;
}

/** Starts a command, or another program that starts one. `output` is what it has printed, `exit` its exit code. */
export const start = (
  args: ReadonlyArray<string>,
  settings: Settings = {},
  [program, ...first]: readonly [string, ...Array<string>] = [process.execPath, main],
  options: SpawnOptions = {},
) => {
  const child = spawn(program, [...first, ...args], {
    stdio: "pipe",
    ...options,
    env: { ...withoutSettings(), ...settings },
  });
  const output = { stdout: "", stderr: "" };
  for (const name of ["stdout", "stderr"] as const)
    child[name]?.on("data", (data) => (output[name] += data));
  const exit = once(child, "close").then(([code]) => code as number | null);
  /** Waits until standard output matches; fails if the program ends before. */
  const untilPrinted = async (pattern: RegExp): Promise<RegExpExecArray> => {
    for (;;) {
      const match = pattern.exec(output.stdout);
      if (match !== null) return match;
      const isOver = exit.then(() => true);
      if ((await Promise.race([isOver, once(child.stdout!, "data")])) === true)
        throw new Error(`${args.join(" ")} ended:\n${output.stdout}${output.stderr}`);
    }
  };
  return { child, output, exit, untilPrinted };
};

/** Starts a server; resolves with the origin of its general interface once it has logged its start. */
export const startServer = async (settings: Settings, ...args: ReadonlyArray<string>) => {
  const server = start(["serve", ...args], settings);
  const printed = await server.untilPrinted(/ has started.*"general":"(.*?)\/api".*\n/);
  return { ...server, origin: printed[1]! };
};

export const run = async (
  args: ReadonlyArray<string>,
  settings: Settings,
  input = "",
): Promise<CommandResult> => {
  const { child, exit, output } = start(args, settings);
  child.stdin!.end(input);
  return { code: await exit, ...output };
};
