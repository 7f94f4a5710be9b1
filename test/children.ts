/** Ends the processes that a test file started and left: the run would wait for them forever. */
import type { ChildProcess } from "node:child_process";
import { subscribe } from "node:diagnostics_channel";
import { afterAll } from "vitest";

const children = new Set<ChildProcess>();
subscribe("child_process", (message) => {
  const { process: child } = message as { readonly process: ChildProcess };
  children.add(child);
  child.once("exit", () => children.delete(child));
});
// The first hook that is registered, and so the last to run.
afterAll(() => {
  for (const child of children) child.kill("SIGKILL");
});
