/**
 * What needs a superuser, who cannot log in: it is done with no server running.
 */
import { Effect } from "effect";
import type { Binaries } from "./Binaries.ts";
import { EmbeddedFailed, oneLine } from "./EmbeddedFailed.ts";
import type { RunAs } from "./OsUser.ts";
import { run } from "./Run.ts";

/** Runs a program to its end; fails with what it said last if that is no success. */
export const must = Effect.fnUntraced(function* (
  what: string,
  command: string,
  args: ReadonlyArray<string>,
  options: { readonly runAs: RunAs; readonly input?: string },
) {
  const { code, output } = yield* run(command, args, options);
  if (code === 0) return;
  const last = oneLine(output.trim().split("\n").slice(-4).join("\n"));
  return yield* new EmbeddedFailed({ message: `${what} (exit code ${code}): ${last}` });
});

/** Runs statements of one line each on the cluster in `data`. */
export const singleUser = (
  what: string,
  { binaries, data, runAs }: { binaries: Binaries; data: string; runAs: RunAs },
  statements: ReadonlyArray<string>,
) =>
  must(
    what,
    binaries.postgres,
    ["--single", "-D", data, "-c", "exit_on_error=on", "-c", "log_checkpoints=off", "postgres"],
    { runAs, input: [...statements, ""].join("\n") },
  );
