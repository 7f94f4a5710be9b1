/**
 * CPU time from Linux's `/proc`. Its resolution is a hundredth of a second for each process.
 */
import { readFileSync } from "node:fs";

/** Linux counts in ticks of a hundredth of a second, on every architecture that Node supports. */
const microsPerTick = 10_000;

const read = (path: string): string => {
  try {
    return readFileSync(path, "latin1");
  } catch {
    // The process has ended: its parent's `cutime` and `cstime` have its time.
    return "";
  }
};

/**
 * The microseconds, in user and in kernel mode, that a process, its living descendants and those that have ended have
 * taken so far. A connection of PostgreSQL that closes meanwhile is not lost: its process becomes one that has ended.
 */
export const cpuMicros = (pid: number): number => {
  // The name of the command may contain spaces and parentheses.
  const stat = read(`/proc/${pid}/stat`);
  const [utime, stime, cutime, cstime] = stat
    .slice(stat.lastIndexOf(")") + 2)
    .split(" ")
    .slice(11, 15)
    .map(Number);
  if (cstime === undefined) return 0;
  const children = read(`/proc/${pid}/task/${pid}/children`).split(" ").filter(Boolean).map(Number);
  return children.reduce(
    (sum, child) => sum + cpuMicros(child),
    (utime! + stime! + cutime! + cstime) * microsPerTick,
  );
};

/** The bytes of memory that a process holds now, and the most that it has held. */
export const memoryOf = (pid: number): { readonly now: number; readonly peak: number } => {
  const status = read(`/proc/${pid}/status`);
  const bytes = (name: string) =>
    Number(new RegExp(`^${name}:\\s+(\\d+) kB`, "m").exec(status)![1]) * 1024;
  return { now: bytes("VmRSS"), peak: bytes("VmHWM") };
};
