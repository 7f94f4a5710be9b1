/**
 * Other processes on this machine.
 */
import { execFile } from "node:child_process";
import { readFile } from "node:fs/promises";
import { promisify } from "node:util";

/** Returns a process's parent and command line, with spaces between arguments; `null` if there is no such process. */
export const findProcess = async (pid: number) => {
  try {
    // Not every container has `ps`.
    const text =
      process.platform === "linux"
        ? `${/^PPid:\s*(\d+)/m.exec(await readFile(`/proc/${pid}/status`, "utf8"))![1]} ` +
          (await readFile(`/proc/${pid}/cmdline`, "utf8")).replaceAll("\0", " ")
        : (await promisify(execFile)("ps", ["-ww", "-o", "ppid=,command=", "-p", String(pid)]))
            .stdout;
    const [, parent, command] = /^\s*(\d+) (.*)/s.exec(text)!;
    return { parent: Number(parent), command: command!.trim() };
  } catch {
    return null;
  }
};
