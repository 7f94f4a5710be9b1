/** Kills the processes that a test file has left behind, and their descendants, so that the run does not wait. */
import type { ChildProcess } from "node:child_process";
import { subscribe } from "node:diagnostics_channel";
import { readFileSync } from "node:fs";
import { afterAll } from "vitest";

/** The process and its descendants, which only Linux lists. */
const treeOf = (pid: number): ReadonlyArray<number> => {
  try {
    const text = readFileSync(`/proc/${pid}/task/${pid}/children`, "utf8");
    return [pid, ...text.split(" ").filter(Boolean).map(Number).flatMap(treeOf)];
  } catch {
    return [pid];
  }
};

const children = new Set<ChildProcess>();
subscribe("child_process", (message) => {
  const { process: child } = message as { readonly process: ChildProcess };
  children.add(child);
  child.once("exit", () => children.delete(child));
});
// This hook is registered first, and so runs last.
afterAll(() => {
  for (const { pid } of children) {
    for (const each of pid === undefined ? [] : treeOf(pid)) {
      try {
        process.kill(each, "SIGKILL");
      } catch {
        // The process has just ended.
      }
    }
  }
});
