import { Effect } from "effect";
import { type ChildProcessWithoutNullStreams, spawn } from "node:child_process";
import { type EmbeddedFailed, failedTo } from "./EmbeddedFailed.ts";
import type { RunAs } from "./OsUser.ts";

/** How a program ended, and all it wrote. */
export interface Ended {
  readonly code: number | null;
  readonly output: string;
}

/**
 * What PostgreSQL's programs see of the environment: no locale, time zone or PG… variable of whoever
 * started the server reaches them.
 */
export const cleanEnvironment = (): NodeJS.ProcessEnv => ({
  PATH: process.env["PATH"],
  LC_ALL: "C",
  TZ: "UTC",
});

/**
 * Runs a program to its end. It starts in `/`, because the server's own directory may be closed to
 * the user it runs as. Fails if it cannot be started at all.
 */
export const run = (
  command: string,
  args: ReadonlyArray<string>,
  options: { readonly runAs: RunAs; readonly input?: string },
): Effect.Effect<Ended, EmbeddedFailed> =>
  Effect.callback((resume) => {
    const failed = (cause: unknown) =>
      resume(Effect.fail(failedTo(`${command} cannot run`)(cause)));
    let child: ChildProcessWithoutNullStreams;
    try {
      child = spawn(command, args, {
        ...options.runAs,
        cwd: "/",
        env: cleanEnvironment(),
        stdio: "pipe",
      });
    } catch (cause) {
      // Some reasons are thrown, others are events.
      return failed(cause);
    }
    let output = "";
    const collect = (chunk: string) => {
      output += chunk;
    };
    child.stdout.setEncoding("utf8").on("data", collect);
    child.stderr.setEncoding("utf8").on("data", collect);
    child.once("error", failed);
    child.once("close", (code) => resume(Effect.succeed({ code, output })));
    // It may end before it has read everything; its exit code then says why.
    child.stdin.on("error", () => {});
    child.stdin.end(options.input ?? "");
    return Effect.sync(() => child.kill("SIGTERM"));
  });
