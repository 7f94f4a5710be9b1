/**
 * What a former run left behind: a whole PostgreSQL whose server was killed, children of a
 * postmaster that was killed, or the file of a postmaster that is long gone.
 */
import { Clock, Effect } from "effect";
import { readdirSync, readFileSync, readlinkSync } from "node:fs";
import { rm } from "node:fs/promises";
import { EmbeddedFailed } from "./EmbeddedFailed.ts";
import { pidFile, readPidFile } from "./PidFile.ts";
import { run } from "./Run.ts";

const isAlive = (pid: number) => {
  try {
    process.kill(pid, 0);
    return true;
  } catch (cause) {
    return (cause as NodeJS.ErrnoException).code === "EPERM";
  }
};

/** A process of PostgreSQL works in its data directory; one that has ended works nowhere. */
const worksIn = (pid: number | string, data: string) => {
  try {
    return (
      readFileSync(`/proc/${pid}/comm`, "utf8").trim() === "postgres" &&
      readlinkSync(`/proc/${pid}/cwd`) === data
    );
  } catch {
    return false;
  }
};

const isPostmasterOf = Effect.fnUntraced(function* (pid: number, data: string) {
  if (!Number.isInteger(pid) || pid <= 1 || !isAlive(pid)) return false;
  if (process.platform === "linux") return worksIn(pid, data);
  return yield* run("ps", ["-o", "command=", "-p", String(pid)], { runAs: null }).pipe(
    Effect.map(({ output }) => output.includes("postgres") && output.includes(data)),
    Effect.orElseSucceed(() => false),
  );
});

/** All processes of PostgreSQL that work in `data`; elsewhere than on Linux they cannot be told. */
const processesOf = (data: string) =>
  process.platform === "linux"
    ? readdirSync("/proc").filter((name) => /^\d+$/.test(name) && worksIn(name, data))
    : [];

const signal = (pid: number, name: NodeJS.Signals) =>
  Effect.sync(() => {
    try {
      process.kill(pid, name);
    } catch {
      // It has ended meanwhile.
    }
  });

/** Whether `done` came true within the time. */
const within = Effect.fnUntraced(function* (millis: number, done: Effect.Effect<boolean>) {
  const until = (yield* Clock.currentTimeMillis) + millis;
  while (!(yield* done)) {
    if ((yield* Clock.currentTimeMillis) > until) return false;
    yield* Effect.sleep("25 millis");
  }
  return true;
});

/** Ends whatever still runs in `data`, so that PostgreSQL can be started there. */
export const stopOrphans = Effect.fnUntraced(function* (data: string) {
  const file = yield* readPidFile(data);
  if (file !== null && (yield* isPostmasterOf(file.pid, data))) {
    yield* Effect.logInfo(`Stopping the PostgreSQL that a former server left behind (${file.pid})`);
    const gone = Effect.map(isPostmasterOf(file.pid, data), (is) => !is);
    yield* signal(file.pid, "SIGINT");
    if (!(yield* within(30_000, gone))) {
      yield* signal(file.pid, "SIGQUIT");
      if (!(yield* within(10_000, gone))) {
        return yield* new EmbeddedFailed({
          message: `The PostgreSQL with process number ${file.pid} still runs in ${data} and does not stop: end it, then start again.`,
        });
      }
    }
  }
  // Children notice that their postmaster is gone, except in the midst of a long statement.
  const empty = Effect.sync(() => processesOf(data).length === 0);
  for (const name of ["SIGQUIT", "SIGKILL"] as const) {
    if (yield* within(1000, empty)) break;
    for (const pid of processesOf(data)) yield* signal(Number(pid), name);
  }
  yield* within(5000, empty);
  // The number may belong to another program by now, which PostgreSQL would take for itself.
  const left = yield* readPidFile(data);
  if (left !== null && isAlive(left.pid)) {
    if (yield* isPostmasterOf(left.pid, data)) return;
    yield* Effect.promise(() => rm(pidFile(data), { force: true }));
  }
});
