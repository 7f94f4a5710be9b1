/**
 * Starts, stops, kills and freezes the parts of a round: servers, a PostgreSQL that they share, and a model.
 */
import { generateKey } from "@parley/core";
import { Effect, Redacted } from "effect";
import { SecureRandom } from "effect/crypto";
import { execFileSync, spawn, type SpawnOptions } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { withoutSettings } from "../apps/server/test/withoutSettings.ts";
import { createCluster } from "../test/PostgresCluster.ts";
import { startModel, type Model } from "./Model.ts";

const main = fileURLToPath(new URL("../apps/server/src/main.ts", import.meta.url));

/** The timeout for starting or stopping anything, in milliseconds. */
const patience = 60_000;

export const helloMessage = "Hello! What would you like to know?";

/**
 * A port for a process that will be killed and restarted. It is below the ephemeral ports, so that no outgoing
 * connection takes it while the process is down.
 */
const freePort = async (): Promise<number> => {
  while (true) {
    const port = 20_000 + Math.floor(Math.random() * 12_000);
    const server = createServer();
    try {
      await once(server.listen(port, "127.0.0.1"), "listening");
      server.close();
      return port;
    } catch {
      continue;
    }
  }
};

/** Calls `look` until it returns something other than `null`. */
const until = async <A>(what: string, look: () => Promise<A | null> | A | null): Promise<A> => {
  const end = Date.now() + patience;
  while (Date.now() < end) {
    const value = await look();
    if (value !== null) return value;
    await sleep(20);
  }
  throw new Error(`${what} took longer than ${patience} ms.`);
};

/** A child process and all its output; `exit` resolves with its exit code, or with the signal that ended it. */
const launch = (command: string, args: ReadonlyArray<string>, options: SpawnOptions) => {
  const child = spawn(command, args, { ...options, stdio: ["ignore", "pipe", "pipe"] });
  // After SIGTERM, PostgreSQL would wait for its clients.
  const stopAtExit = () => child.kill("SIGINT");
  process.once("exit", stopAtExit);
  let log = "";
  let hasEnded = false;
  for (const output of [child.stdout!, child.stderr!]) {
    output.setEncoding("utf8").on("data", (chunk: string) => (log += chunk));
  }
  const exit = once(child, "exit").then(([code, signal]) => {
    process.removeListener("exit", stopAtExit);
    hasEnded = true;
    return (signal ?? code) as number | NodeJS.Signals;
  });
  return { child, exit, isRunning: () => !hasEnded, log: () => log };
};

type Launch = ReturnType<typeof launch>;

const end = async ({ child, exit, log }: Launch, signal: NodeJS.Signals) => {
  child.kill(signal);
  const code = await Promise.race([exit, sleep(patience, null, { ref: false })]);
  if (code !== null) return code;
  child.kill("SIGKILL");
  throw new Error(`A process did not end by ${signal}:\n${log().slice(-4000)}`);
};

export const signal = (pid: number, name: NodeJS.Signals): void => {
  try {
    process.kill(pid, name);
  } catch (cause) {
    if ((cause as NodeJS.ErrnoException).code !== "ESRCH") throw cause;
  }
};

/** The child processes whose command lines match the pattern, by default PostgreSQL's. */
const postgresBelow = (parent: number, pattern = /postgres/): ReadonlyArray<number> =>
  execFileSync("ps", ["-A", "-o", "pid=,ppid=,args="], { encoding: "utf8" })
    .split("\n")
    .map((line) => /^\s*(\d+)\s+(\d+)\s+(.*)$/.exec(line))
    .filter((match) => match !== null && Number(match[2]) === parent && pattern.test(match[3]!))
    .map((match) => Number(match![1]));

export interface Database {
  readonly start: () => Promise<void>;
  /**
   * Sends SIGKILL to the postmaster, or to one backend. When a backend is killed, PostgreSQL ends all other backends
   * and recovers.
   */
  readonly kill: (which: "postmaster" | "backend") => Promise<void>;
  readonly signalAll: (name: "SIGSTOP" | "SIGCONT") => void;
  readonly stop: () => Promise<void>;
}

/** A PostgreSQL that the harness runs, for servers that share one. */
const makePostgres = async (directory: string) => {
  const cluster = await createCluster(directory, { port: String(await freePort()) });
  let postmaster: Launch | null = null;
  const database: Database = {
    start: () =>
      until("The start of PostgreSQL", async () => {
        // PostgreSQL refuses to start while a child of a killed postmaster is still running.
        if (!postmaster?.isRunning()) postmaster = launch(...cluster.command);
        await sleep(50);
        return postmaster.log().includes("ready to accept connections") ? undefined : null;
      }),
    kill: async (which) => {
      if (which === "postmaster") return void (await end(postmaster!, "SIGKILL"));
      const [backend] = postgresBelow(postmaster!.child.pid!, /^postgres: postgres postgres /);
      signal(backend!, "SIGKILL");
    },
    signalAll: (name) => {
      const pid = postmaster!.child.pid!;
      signal(pid, name);
      for (const child of postgresBelow(pid)) signal(child, name);
    },
    stop: async () => void (postmaster?.isRunning() && (await end(postmaster, "SIGINT"))),
  };
  await database.start();
  return { database, url: cluster.urlOf("postgres") };
};

/** A directory with everything that a server needs besides its program. It outlives the servers that use it. */
export interface Site {
  readonly directory: string;
  /** A key for each of the two chatbots. */
  readonly keys: readonly [string, string];
  readonly environment: NodeJS.ProcessEnv;
  /** Removes the files, which must no longer be in use. */
  readonly remove: () => Promise<void>;
}

export const makeSite = async (): Promise<Site> => {
  const directory = await mkdtemp(join(tmpdir(), "parley-faults-"));
  const provision = join(directory, "provision.json");
  const key = generateKey.pipe(
    Effect.map(Redacted.value),
    Effect.provide(SecureRandom.layerWebCrypto),
  );
  const keys = await Effect.runPromise(Effect.all([key, key]));
  const chatbots = keys.map((key, n) => ({
    workspace: "Faults",
    name: `Bot ${n}`,
    helloMessage,
    keys: [{ key, scopes: ["read", "write", "ask"] }],
  }));
  await writeFile(provision, JSON.stringify({ chatbots }), { mode: 0o600 });
  const dataDir = join(directory, "data");
  return {
    directory,
    keys,
    environment: {
      ...withoutSettings(),
      PARLEY_DATA_DIR: dataDir,
      PARLEY_PROVISION: provision,
      PARLEY_MANAGEMENT_PORT: "0",
      PARLEY_DRAIN_DELAY: "0 seconds",
    },
    remove: () => rm(directory, { recursive: true, force: true }),
  };
};

export interface Server {
  readonly baseUrl: string;
  readonly askUrl: string;
  readonly start: () => Promise<void>;
  /** Sends SIGKILL. */
  readonly kill: () => Promise<void>;
  /** Sends SIGTERM; resolves with the exit code, or the signal that ended the server. */
  readonly stop: () => Promise<number | NodeJS.Signals>;
  readonly signal: (name: "SIGSTOP" | "SIGCONT") => void;
  readonly isRunning: () => boolean;
  readonly pid: () => number;
  /** The output of every process that has run as this server, in the order of their starts. */
  readonly log: () => string;
}

/** The Node options that the installed command sets. */
const nodeOptions = ["--max-semi-space-size=16"];

/** A server on its own port, which it keeps across restarts. */
export const makeServer = async (
  site: Site,
  settings: Readonly<Record<string, string>>,
  options: ReadonlyArray<string> = ["--log-level", "all"],
): Promise<Server> => {
  const port = await freePort();
  const baseUrl = `http://127.0.0.1:${port}/api`;
  const env = { ...site.environment, ...settings, PARLEY_PORT: String(port) };
  const runs: Array<Launch> = [];
  const log = () => runs.map((run) => run.log()).join("\n");
  const isServing = () =>
    fetch(`${baseUrl}/details`, { headers: { "x-api-key": site.keys[0] } }).then(
      ({ status }) => (status === 200 ? true : null),
      () => null,
    );
  return {
    baseUrl,
    askUrl: `http://127.0.0.1:${port}/ask`,
    start: async () => {
      const args = [...nodeOptions, main, "serve", ...options];
      const run = launch(process.execPath, args, { cwd: site.directory, env });
      runs.push(run);
      await until("The start of a server", async () => {
        if (!run.isRunning()) throw new Error(`The server did not start:\n${run.log()}`);
        return await isServing();
      });
    },
    kill: async () => void (await end(runs.at(-1)!, "SIGKILL")),
    stop: () => end(runs.at(-1)!, "SIGTERM"),
    signal: (name) => void runs.at(-1)!.child.kill(name),
    isRunning: () => runs.at(-1)?.isRunning() === true,
    pid: () => runs.at(-1)!.child.pid!,
    log,
  };
};

export interface Service {
  readonly site: Site;
  readonly model: Model;
  readonly servers: ReadonlyArray<Server>;
  /** `null` if the harness did not start a database. */
  readonly database: Database | null;
  readonly stop: () => Promise<void>;
}

/**
 * Starts servers that share a file, a PostgreSQL of the harness, or the one at a URL. `settings` returns further settings for a server, given its number and the address of the shared database.
 */
export const startService = async (
  amount: number,
  store: "file" | "postgres" | URL,
  settings: (at: number, url: string) => Readonly<Record<string, string>> = () => ({}),
): Promise<Service> => {
  const site = await makeSite();
  const model = await startModel();
  const postgres = store === "postgres" ? await makePostgres(site.directory) : null;
  const url = store instanceof URL ? store.href : postgres?.url;
  const servers: Array<Server> = [];
  const stop = async () => {
    postgres?.database.signalAll("SIGCONT");
    for (const server of servers) {
      if (!server.isRunning()) continue;
      server.signal("SIGCONT");
      await server.stop().catch(() => server.kill());
    }
    await postgres?.database.stop();
    model.close();
    await site.remove();
  };
  try {
    for (let at = 0; at < amount; at++) {
      const server = await makeServer(site, {
        ...(url !== undefined && { PARLEY_STORE: "postgres", DATABASE_URL: url }),
        ...model.environment,
        ...settings(at, url ?? ""),
      });
      servers.push(server);
      await server.start();
    }
  } catch (cause) {
    await stop();
    throw cause;
  }
  return { site, model, servers, database: postgres?.database ?? null, stop };
};
