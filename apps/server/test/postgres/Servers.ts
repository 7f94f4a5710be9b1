import * as PgConnection from "@effect/sql-pg/PgConnection";
import { Effect, Redacted, Schedule } from "effect";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { chmod, mkdtemp, readFile, realpath, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";

/** A directory that is removed when the scope closes. */
export const temporaryDirectory = Effect.acquireRelease(
  Effect.promise(async () => {
    const directory = await realpath(await mkdtemp(join(tmpdir(), "parley-postgres-")));
    // Other users must be able to pass through the directory.
    await chmod(directory, 0o711);
    return directory;
  }),
  (directory) => Effect.promise(() => rm(directory, { recursive: true, force: true })),
);

/** A data directory that does not exist yet. */
export const newDataDir = Effect.map(temporaryDirectory, (directory) => join(directory, "data"));

export const dataOf = (dataDir: string) => join(dataDir, "postgres", "data");

export const postmasterOf = (dataDir: string) =>
  Effect.promise(async () =>
    Number((await readFile(join(dataOf(dataDir), "postmaster.pid"), "utf8")).split("\n")[0]),
  );

export const isAlive = (pid: number) => {
  try {
    return process.kill(pid, 0);
  } catch {
    return false;
  }
};

export interface ServerOptions {
  readonly uid?: number;
  readonly gid?: number;
  readonly env?: Readonly<Record<string, string>>;
  /** A program, with its arguments, that runs the server. */
  readonly through?: ReadonlyArray<string>;
  /** The server drains until this file exists. */
  readonly drainFile?: string;
}

/** Starts a server in its own process group. When the scope closes, it is stopped, and killed if that takes 20 s. */
export const startServer = (
  dataDir: string,
  { drainFile = "/", env, through = [], ...user }: ServerOptions = {},
) =>
  Effect.acquireRelease(
    Effect.sync(() => {
      const file = fileURLToPath(new URL("Server.ts", import.meta.url));
      const [program, ...args] = [...through, process.execPath, file, dataDir, drainFile];
      const child = spawn(program!, args, {
        ...user,
        cwd: "/",
        detached: true,
        env: { ...process.env, ...env },
        stdio: ["ignore", "pipe", "inherit"],
      });
      const lines: Array<string> = [];
      const answers = /^(postgres:|failed )/;
      const answer = new Promise<string>((resolve) =>
        createInterface(child.stdout)
          .on("line", (line) => {
            lines.push(line);
            if (answers.test(line)) resolve(line);
          })
          .on("close", () => resolve("ended without a word")),
      );
      const exit = once(child, "exit");
      return {
        pid: child.pid!,
        /** Everything that it has printed, including its log. */
        lines,
        /** Its database's URL, or why it has none. */
        answer: Effect.promise(() => answer),
        exitCode: Effect.promise(() => exit.then(([code]) => code as number | null)),
        kill: (signal: NodeJS.Signals) => Effect.sync(() => child.kill(signal)),
      };
    }),
    ({ exitCode, kill }) =>
      kill("SIGTERM").pipe(
        Effect.andThen(Effect.timeoutOption(exitCode, "20 seconds")),
        Effect.andThen(kill("SIGKILL")),
      ),
  );

/** Runs one statement on its own connection. */
export const query = (url: string | Redacted.Redacted, statement: string) =>
  PgConnection.make({ url: typeof url === "string" ? Redacted.make(url) : url }).pipe(
    Effect.flatMap((connection) => connection.query(statement)),
    Effect.map(({ rows }) => rows),
    Effect.scoped,
  );

export const keep = (url: string | Redacted.Redacted) =>
  query(url, "CREATE TABLE kept AS SELECT 42 AS answer");

/** Reads the answer that {@link keep} stored, as soon as the database responds. */
export const readKept = (url: string | Redacted.Redacted) =>
  query(url, "SELECT answer FROM kept").pipe(
    Effect.map(([row]) => row!["answer"]),
    Effect.retry({ times: 100, schedule: Schedule.spaced("100 millis") }),
  );
