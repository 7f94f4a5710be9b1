import { Effect } from "effect";
import { readFile } from "node:fs/promises";
import { join } from "node:path";

export const pidFile = (data: string) => join(data, "postmaster.pid");

/** What the postmaster of `data` says about itself, or `null` if no file is there. */
export const readPidFile = (data: string) =>
  Effect.promise(async () => {
    const text = await readFile(pidFile(data), "utf8").catch(() => null);
    if (text === null) return null;
    const lines = text.split("\n");
    return { pid: Math.abs(Number(lines[0])), status: lines[7]?.trim() ?? "" };
  });
