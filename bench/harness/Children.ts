/**
 * Stops all processes that a run has started when the run ends, even on Ctrl-C.
 */
import type { ChildProcess } from "node:child_process";
import { setTimeout as sleep } from "node:timers/promises";

const stops: Array<() => Promise<void>> = [];
const removals: Array<() => void> = [];
const stopController = new AbortController();
let stopPromise: Promise<void> | null = null;

/** Aborted when the run is being stopped. */
export const stopSignal = stopController.signal;

/**
 * Stops a process at the end of the run, and returns a function that stops it earlier. The process receives `signal`,
 * and is killed if it has not stopped after 10 s. If it exits on its own, the run is aborted.
 */
export const own = (
  name: string,
  child: ChildProcess,
  signal: NodeJS.Signals,
): (() => Promise<void>) => {
  if (stopPromise !== null) {
    child.kill("SIGKILL");
    throw new Error(`${name} was started while the run was being stopped.`);
  }
  let isAsked = false;
  // A server's log matters only if the server fails.
  let output = "";
  child.stdout?.on("data", (text) => (output = (output + text).slice(-2000)));
  const hasEnded = () => child.exitCode !== null || child.signalCode !== null;
  child.once("error", (error) => void abort(`${name} cannot be started: ${error.message}`));
  child.once("exit", (code, by) => {
    if (!isAsked) void abort(`${name} ended by itself (${by ?? code}).\n${output}`);
  });
  const stop = async (): Promise<void> => {
    isAsked = true;
    if (hasEnded()) return;
    child.kill(signal);
    for (let i = 0; i < 100 && !hasEnded(); i++) await sleep(100);
    if (hasEnded()) return;
    console.error(`${name} did not stop within 10 s and was killed.`);
    child.kill("SIGKILL");
    for (let i = 0; i < 20 && !hasEnded(); i++) await sleep(100);
  };
  stopAtEnd(stop);
  return stop;
};

/** Calls `stop` at the end of the run. */
export const stopAtEnd = (stop: () => Promise<void>): void => void stops.push(stop);

/** Calls `remove` once all processes have stopped. */
export const afterAll = (remove: () => void): void => void removals.push(remove);

/** Stops the processes, starting with the latest, and then calls the functions given to {@link afterAll}. */
export const stopAll = (): Promise<void> =>
  (stopPromise ??= (async () => {
    stopController.abort();
    for (const stop of stops.toReversed()) await stop();
    for (const remove of removals) remove();
  })());

/** Stops everything and exits, by default with code 1. */
export const abort = async (why: string, code = 1): Promise<never> => {
  if (stopPromise === null) console.error(why);
  await stopAll();
  process.exit(code);
};

// Children are in their own process groups, so a terminal's Ctrl-C reaches them only through this process.
for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"] as const) {
  process.on(signal, () => void abort("Stopped.", 130));
}
