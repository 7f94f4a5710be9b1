/**
 * CPU time and memory from Linux's `/proc`. The resolution of CPU time is a hundredth of a second for each process.
 */
import { readFileSync } from "node:fs";

/** Linux counts in ticks of a hundredth of a second, on every architecture that Node supports. */
const microsPerTick = 10_000;

const read = (path: string): string => {
  try {
    return readFileSync(path, "latin1");
  } catch {
    // The process has ended: its parent's `cutime` and `cstime` include its time.
    return "";
  }
};

/**
 * The CPU time, in microseconds and in user and kernel mode, that a process and its descendants, including those that
 * have ended, have used so far. So if a PostgreSQL connection closes meanwhile, the time of its process still counts.
 */
export const cpuMicros = (pid: number): number => {
  // The command's name may contain spaces and parentheses.
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

/** How many bytes of memory a process holds now, and the most that it has held. */
export const memoryOf = (pid: number): { readonly now: number; readonly peak: number } => {
  const status = read(`/proc/${pid}/status`);
  const bytes = (name: string) =>
    Number(new RegExp(`^${name}:\\s+(\\d+) kB`, "m").exec(status)![1]) * 1024;
  return { now: bytes("VmRSS"), peak: bytes("VmHWM") };
};
