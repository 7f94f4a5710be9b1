/**
 * Other processes on this machine.
 */
import { execFile } from "node:child_process";
import { readFile } from "node:fs/promises";
import { promisify } from "node:util";

/**
 * The errors that mean that there is no such process, or none that this user may see: codes of /proc on Linux, and the
 * exit code of `ps`.
 */
const absences: ReadonlyArray<unknown> = ["ENOENT", "ESRCH", "EACCES", "EPERM", 1];

const describeProcess = async (pid: number) => {
  // Not every container has `ps`.
  if (process.platform === "linux") {
    const status = await readFile(`/proc/${pid}/status`, "utf8");
    const commandLine = await readFile(`/proc/${pid}/cmdline`, "utf8");
    return `${/^PPid:\s*(\d+)/m.exec(status)?.[1]} ${commandLine.replaceAll("\0", " ")}`;
  }
  const options = ["-ww", "-o", "ppid=,command=", "-p", String(pid)];
  return (await promisify(execFile)("ps", options)).stdout;
};

/**
 * Returns a process's parent and command line, with spaces between arguments; `null` if there is no such process. Fails
 * if it cannot tell, for example because this process is out of file descriptors.
 */
export const findProcess = async (pid: number) => {
  const text = await describeProcess(pid).catch((error) => {
    if (absences.includes(error.code)) return "";
    throw error;
  });
  const match = /^\s*(\d+) (.*)/s.exec(text);
  return match && { parent: Number(match[1]), command: match[2]!.trim() };
};
