/**
 * The processes that a run started, all stopped at its end, also on Ctrl-C.
 */
import type { ChildProcess } from "node:child_process";
import { setTimeout as sleep } from "node:timers/promises";

const stops: Array<() => Promise<void>> = [];
const removals: Array<() => void> = [];
const ending = new AbortController();
let stopping: Promise<void> | null = null;

/** Aborted when the run is being stopped. */
export const stopSignal = ending.signal;

/**
 * Has a process stopped at the end of the run, and gives what stops it earlier. It is sent `signal`,
 * and killed after 10 s. A process that ends by itself ends the run.
 */
export const own = (
  name: string,
  child: ChildProcess,
  signal: NodeJS.Signals,
): (() => Promise<void>) => {
  if (stopping !== null) {
    child.kill("SIGKILL");
    throw new Error(`${name} was started while the run was being stopped.`);
  }
  let asked = false;
  // The log of a server matters only if it fails.
  let said = "";
  child.stdout?.on("data", (text) => (said = (said + text).slice(-2000)));
  const ended = () => child.exitCode !== null || child.signalCode !== null;
  child.once("error", (error) => void abort(`${name} cannot be started: ${error.message}`));
  child.once("exit", (code, by) => {
    if (!asked) void abort(`${name} ended by itself (${by ?? code}).\n${said}`);
  });
  const stop = async (): Promise<void> => {
    asked = true;
    if (ended()) return;
    child.kill(signal);
    for (let i = 0; i < 100 && !ended(); i++) await sleep(100);
    if (ended()) return;
    console.error(`${name} did not stop within 10 s and was killed.`);
    child.kill("SIGKILL");
    for (let i = 0; i < 20 && !ended(); i++) await sleep(100);
  };
  stops.push(stop);
  return stop;
};

/** Has something done once all processes are stopped. */
export const afterAll = (remove: () => void): void => void removals.push(remove);

/** Stops the processes, the last one first. */
export const stopAll = (): Promise<void> =>
  (stopping ??= (async () => {
    ending.abort();
    for (const stop of stops.toReversed()) await stop();
    for (const remove of removals) remove();
  })());

/** Stops everything and exits, 1 unless told otherwise. */
export const abort = async (why: string, code = 1): Promise<never> => {
  if (stopping === null) console.error(why);
  await stopAll();
  process.exit(code);
};

// Children are in groups of their own, so that a terminal's Ctrl-C reaches them by this way alone.
for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"] as const) {
  process.on(signal, () => void abort("Stopped.", 130));
}
