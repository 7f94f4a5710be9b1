/**
 * Stops the process if its terminal closes, or if the package manager that runs it exits.
 */
import { Effect, Schedule } from "effect";
import { readFile } from "node:fs/promises";

/** Whether the process has a terminal. Under `nohup` or a supervisor it has none. */
export const hasTerminal = [process.stdin, process.stdout, process.stderr].some(
  ({ isTTY }) => isTTY,
);

/** A function that signals this process unless it is already stopping: a second signal would end it immediately. */
const makeStop = Effect.sync(() => {
  let isStopping = false;
  const note = () => void (isStopping = true);
  process.on("SIGINT", note).on("SIGTERM", note);
  return (signal: NodeJS.Signals) => void (isStopping || process.kill(process.pid, signal));
});

/** Makes SIGHUP stop the process as Ctrl-C does. */
export const stopOnHangup = Effect.map(makeStop, (stop) => {
  process.on("SIGHUP", () => stop("SIGINT"));
});

/** The errors of `/proc` that mean that there is no such process, or none that this user may see. */
const absences: ReadonlyArray<unknown> = ["ENOENT", "ESRCH", "EACCES", "EPERM"];

/** Returns a process's parent and command line; `null` if there is no such process. Fails if it cannot tell. */
const findProcess = async (pid: number) => {
  try {
    const status = await readFile(`/proc/${pid}/status`, "utf8");
    const command = await readFile(`/proc/${pid}/cmdline`, "utf8");
    const parent = Number(/^PPid:\s*(\d+)/m.exec(status)?.[1]);
    return { parent, command: command.replaceAll("\0", " ").trim() };
  } catch (error) {
    if (absences.includes((error as NodeJS.ErrnoException).code)) return null;
    throw error;
  }
};

const isRunner = (command: string) =>
  /^(\S*node )?(\S*\/)?(npm|npx|pnpm)(-cli)?(\.[cm]?js)?( |$)/.test(command);

/** The ids of this process's ancestors up to the outermost package manager, such as a shell, pnpm, a shell and npx. */
const findRunners = Effect.tryPromise(async () => {
  const runners: Array<number> = [];
  const shells: Array<number> = [];
  for (let pid = process.ppid; shells.length < 2;) {
    const above = await findProcess(pid);
    if (above === null) break;
    shells.push(pid);
    if (isRunner(above.command)) runners.push(...shells.splice(0));
    else if (!/^\S*sh -c /.test(above.command)) break;
    pid = above.parent;
  }
  return runners.join();
  // A failure to find out, such as a lack of file descriptors, does not mean that a package manager has exited.
}).pipe(Effect.retry(Schedule.spaced("1 second")));

/**
 * If the `start` script runs the server, stops the server when a package manager above it exits. On SIGTERM, npx exits
 * but forwards the signal only to a shell, so pnpm and the server would keep running. Works only on Linux, where
 * supervisors and containers send that signal.
 */
export const stopWithScript = Effect.gen(function* () {
  if (process.env["npm_lifecycle_event"] !== "start" || process.platform !== "linux") return;
  const stop = yield* makeStop;
  yield* Effect.gen(function* () {
    const runners = yield* findRunners;
    yield* Effect.repeat(findRunners, {
      while: (current) => current === runners,
      schedule: Schedule.spaced("1 second"),
    });
    stop("SIGTERM");
  }).pipe(Effect.forkScoped);
});
