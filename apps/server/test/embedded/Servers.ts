import { Effect } from "effect";
import { spawn } from "node:child_process";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";

export interface ServerOptions {
  readonly uid?: number;
  readonly gid?: number;
  readonly env?: Readonly<Record<string, string>>;
  /** It drains until this file exists. */
  readonly drained?: string;
}

export const serverFile = fileURLToPath(new URL("Server.ts", import.meta.url));

/** Starts a server in a process group of its own; it is killed when the scope closes. */
export const startServer = (dataDir: string, options: ServerOptions = {}) =>
  Effect.map(
    Effect.acquireRelease(
      Effect.sync(() => {
        const { drained = "/", env, gid, uid } = options;
        const child = spawn(process.execPath, [serverFile, dataDir, drained], {
          ...(uid === undefined ? {} : { uid }),
          ...(gid === undefined ? {} : { gid }),
          cwd: "/",
          detached: true,
          env: { ...process.env, ...env },
          stdio: ["ignore", "pipe", "inherit"],
        });
        const lines: Array<string> = [];
        const first = new Promise<string>((resolve) =>
          createInterface(child.stdout)
            .on("line", (line) => {
              lines.push(line);
              resolve(line);
            })
            .on("close", () => resolve("ended without a word")),
        );
        const exited = new Promise<void>((resolve) => child.once("exit", () => resolve()));
        return { child, lines, first, exited };
      }),
      ({ child, exited }) =>
        Effect.promise(() => {
          child.kill("SIGKILL");
          return exited;
        }),
    ),
    ({ child, exited, first, lines }) => ({
      pid: child.pid!,
      /** What it has printed. */
      lines,
      /** The first line it prints: its url, or why it has none. */
      first: Effect.promise(() => first),
      exited: Effect.promise(() => exited),
    }),
  );
