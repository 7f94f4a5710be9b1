/**
 * The processes of a site's own PostgreSQL.
 */
import { execFileSync } from "node:child_process";
import { readFileSync, realpathSync } from "node:fs";
import { join } from "node:path";
import type { Site } from "./Site.ts";

const isAlive = (pid: number): boolean => {
  try {
    process.kill(pid, 0);
    return true;
  } catch {
    return false;
  }
};

/** The process number of the site's postmaster, or `null` when none runs. */
export const postmasterOf = (site: Site): number | null => {
  try {
    const home = realpathSync(join(site.dataDir, "postgres"));
    const [line] = readFileSync(join(home, "data", "postmaster.pid"), "utf8").split("\n");
    const pid = Number(line);
    return Number.isInteger(pid) && pid > 1 && isAlive(pid) ? pid : null;
  } catch {
    return null;
  }
};

/** The process numbers of those children of a postmaster that serve connections. */
export const backendsOf = (postmaster: number): ReadonlyArray<number> =>
  execFileSync("ps", ["-A", "-o", "pid=,ppid=,command="], { encoding: "utf8" })
    .split("\n")
    .map((line) => /^\s*(\d+)\s+(\d+)\s+postgres: parley\w* parley/.exec(line))
    .filter((found) => found !== null && Number(found[2]) === postmaster)
    .map((found) => Number(found![1]));

/** `kill -9`, unless it is gone already. */
export const killProcess = (pid: number): void => {
  try {
    process.kill(pid, "SIGKILL");
  } catch (cause) {
    if ((cause as NodeJS.ErrnoException).code !== "ESRCH") throw cause;
  }
};

/** Whether a process is gone within the time. */
export const isGone = async (pid: number, millis: number): Promise<boolean> => {
  const until = Date.now() + millis;
  while (isAlive(pid)) {
    if (Date.now() > until) return false;
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
  return true;
};
