/**
 * Runs a command in this process, which is quicker than starting another.
 */
import * as NodeServices from "@effect/platform-node/NodeServices";
import { Console, Effect, Layer, Sink, Stdio, Stream } from "effect";
import { format } from "node:util";
import { expect } from "vitest";
import { parley } from "../../src/cli/Cli.ts";
import { exitCode } from "../../src/cli/CommandErrors.ts";
import type { CommandResult } from "./run.ts";

const isSetting = (name: string) => /^(PARLEY_|DATABASE_|OTEL_|HTTPS_PROXY$)/.test(name);

/** Like `run` in `run.ts`, but for one command at a time, because its settings go into this process's environment. */
export const here = async (
  args: ReadonlyArray<string>,
  settings: Readonly<Record<string, string>>,
  input: string | Uint8Array = "",
): Promise<CommandResult> => {
  for (const name of Object.keys(process.env)) if (isSetting(name)) delete process.env[name];
  Object.assign(process.env, settings);
  let stdout = "";
  let stderr = "";
  const decoder = new TextDecoder();
  const sink = (write: (text: string) => void) => () =>
    Sink.forEach((data: string | Uint8Array) =>
      Effect.sync(() => write(typeof data === "string" ? data : decoder.decode(data))),
    );
  const stdio = Stdio.layerTest({
    args: Effect.succeed(args),
    stdinIsTerminal: Effect.succeed(false),
    stdin: Stream.make(typeof input === "string" ? new TextEncoder().encode(input) : input),
    stdout: sink((text) => (stdout += text)),
    stderr: sink((text) => (stderr += text)),
  });
  const exit = await parley.pipe(
    Effect.provide(Layer.merge(NodeServices.layer, stdio)),
    Effect.provideService(Console.Console, {
      ...console,
      log: (...all) => (stdout += `${format(...all)}\n`),
      error: (...all) => (stderr += `${format(...all)}\n`),
    }),
    Effect.runPromiseExit,
  );
  return { code: exitCode(exit), stdout, stderr };
};

/** Functions that run a command with these settings, and that return the JSON that a command prints. */
export const shell = (settings: Readonly<Record<string, string>>) => {
  const parley = (line: string, input?: string | Uint8Array) =>
    here(line.split(" "), settings, input);
  const json = async (line: string) => {
    const { code, stderr, stdout } = await parley(`${line} --json`);
    expect(code, stderr).toBe(0);
    return JSON.parse(stdout);
  };
  return { parley, json };
};

/** Matches a one-line error and a one-line hint, and nothing else. */
export const oneLineAndHint = /^parley: [^\n]+[.!?]\nhint: [^\n]+\n$/;

/** One of the findings that `parley doctor --json` prints. */
export interface Finding {
  readonly check: string;
  readonly status: string;
  readonly message: string;
  readonly hint: string | null;
}
