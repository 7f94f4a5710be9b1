import { start } from "../../apps/server/test/cli/run.ts";
import { requirePackages } from "./requirePackages.ts";

export const judges = requirePackages("system/judges");

/** Runs a program in `judges`; returns what it prints. If the program fails, the error contains its output. */
export const judge = async (
  program: ReadonlyArray<string>,
  input = "",
  settings: Readonly<Record<string, string>> = {},
): Promise<string> => {
  const { child, exit, output } = start(program, settings, [process.execPath], { cwd: judges });
  child.stdin!.end(input);
  if ((await exit) !== 0) throw new Error(output.stdout + output.stderr);
  return output.stdout;
};
