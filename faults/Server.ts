/**
 * The real server, as a process of its own.
 */
import { spawn } from "node:child_process";
import { once } from "node:events";
import type { Site } from "./Site.ts";
import { main } from "./Site.ts";

/** How a process ended: its exit code, or the signal that ended it. */
export type Ended = number | NodeJS.Signals;

export interface Server {
  readonly pid: number;
  /** The general interface's base address, for example `http://127.0.0.1:3000/api`. */
  readonly baseUrl: string;
  /** The answers interface's only endpoint. */
  readonly askUrl: string;
  /** What it has written so far. */
  readonly log: () => string;
  readonly ended: Promise<Ended>;
  /** `kill -9`; resolves when it is gone. */
  readonly kill: () => Promise<void>;
  /** SIGTERM; resolves when it is gone. Rejects after 60 s. */
  readonly stop: () => Promise<Ended>;
}

/** Starts a server on the site; resolves when it serves. `extra` are further settings, `flags` of `serve`. */
export const startServer = async (
  site: Site,
  extra: Readonly<Record<string, string>> = {},
  flags: ReadonlyArray<string> = [],
): Promise<Server> => {
  const child = spawn(process.execPath, [main, "serve", ...flags], {
    cwd: site.directory,
    env: { ...site.environment, ...extra },
    stdio: ["ignore", "pipe", "pipe"],
  });
  // Not killed: it would leave its PostgreSQL behind.
  const stopAtExit = () => child.kill("SIGTERM");
  process.once("exit", stopAtExit);
  const ended = once(child, "exit").then(([code, signal]) => {
    process.removeListener("exit", stopAtExit);
    return (signal ?? code) as Ended;
  });
  let log = "";
  const addresses = new Promise<readonly [baseUrl: string, askUrl: string]>((resolve) => {
    const read = (chunk: string) => {
      log += chunk;
      const baseUrl = /^General interface\s+(\S+)$/m.exec(log)?.[1];
      const askUrl = /^Answers interface\s+(\S+)$/m.exec(log)?.[1];
      if (baseUrl !== undefined && askUrl !== undefined) resolve([baseUrl, askUrl]);
    };
    child.stdout.setEncoding("utf8").on("data", read);
    child.stderr.setEncoding("utf8").on("data", read);
  });
  const kill = async () => {
    child.kill("SIGKILL");
    await ended;
  };
  const late = Promise.withResolvers<null>();
  const timer = setTimeout(() => late.resolve(null), 60_000);
  const found = await Promise.race([addresses, late.promise, ended.then(() => null)]);
  clearTimeout(timer);
  if (found === null) {
    await kill();
    throw new Error(`The server did not start:\n${log}`);
  }
  return {
    pid: child.pid!,
    baseUrl: found[0],
    askUrl: found[1],
    log: () => log,
    ended,
    kill,
    stop: async () => {
      const timeout = AbortSignal.timeout(60_000);
      const stuck = once(timeout, "abort").then(async () => {
        await kill();
        throw new Error(`The server did not stop:\n${log}`);
      });
      child.kill("SIGTERM");
      return await Promise.race([ended, stuck]);
    },
  };
};
