import { Effect } from "effect";
import { chmod, mkdtemp, readFile, realpath, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";

/** A directory that is removed with the scope, open to all who have to pass through. */
export const temporaryDirectory = Effect.acquireRelease(
  Effect.promise(async () => {
    const directory = await mkdtemp(join(tmpdir(), "parley-embedded-"));
    await chmod(directory, 0o711);
    return await realpath(directory);
  }),
  (directory) => Effect.promise(() => rm(directory, { recursive: true, force: true })),
);

/** A data directory that is not there yet. */
export const newDataDir = Effect.map(temporaryDirectory, (directory) => join(directory, "data"));

export const postmasterPid = (dataDir: string) =>
  Effect.map(
    Effect.promise(() => readFile(join(dataDir, "postgres", "data", "postmaster.pid"), "utf8")),
    (text) => Number(text.split("\n")[0]),
  );

export const isAlive = (pid: number) => {
  try {
    process.kill(pid, 0);
    return true;
  } catch {
    return false;
  }
};
