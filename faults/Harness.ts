/**
 * Starts, stops, kills and freezes the parts of a round: servers, a PostgreSQL that they share, and a model.
 */
import { execFileSync, type SpawnOptions } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { main, start } from "../apps/server/test/cli/run.ts";
import { makeKeys } from "../test/keys.ts";
import { createCluster } from "../test/PostgresCluster.ts";
import { startModel, type Model } from "./Model.ts";

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

/** A child process; `exit` resolves with its exit code, or with the signal that ended it. */
const launch = (
  args: ReadonlyArray<string>,
  settings: NodeJS.ProcessEnv,
  program: readonly [string, ...Array<string>],
  options: SpawnOptions,
) => {
  const run = start(args, settings as Record<string, string>, program, options);
  // After SIGTERM, PostgreSQL would wait for its clients.
  const stopAtExit = () => run.child.kill("SIGINT");
  process.once("exit", stopAtExit);
  let hasEnded = false;
  // Not `close`: after a kill, PostgreSQL's other processes have the output open for a moment.
  const exit = once(run.child, "exit").then(([code, signal]) => {
    process.removeListener("exit", stopAtExit);
    hasEnded = true;
    return (signal ?? code) as number | NodeJS.Signals;
  });
  const log = () => run.output.stdout + run.output.stderr;
  return { ...run, exit, isRunning: () => !hasEnded, log };
};

type Launch = ReturnType<typeof launch>;

const end = async ({ child, exit, log }: Launch, signal: NodeJS.Signals) => {
  child.kill(signal);
  const code = await Promise.race([exit, sleep(patience, "late" as const, { ref: false })]);
  if (code !== "late") return code;
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

/** A PostgreSQL that the harness runs, for servers that share one. */
const makePostgres = async (directory: string) => {
  const cluster = await createCluster(directory, { port: String(await freePort()) });
  let postmaster: Launch | null = null;
  const database = {
    start: (): Promise<void> =>
      until("The start of PostgreSQL", async () => {
        // PostgreSQL refuses to start while a child of a killed postmaster is still running.
        const [program, args, { env, ...options }] = cluster.command;
        if (!postmaster?.isRunning()) postmaster = launch(args, env!, [program], options);
        await sleep(50);
        return postmaster.log().includes("ready to accept connections") ? undefined : null;
      }),
    /**
     * Sends SIGKILL to the postmaster, or to one backend. When a backend is killed, PostgreSQL ends all other backends
     * and recovers.
     */
    kill: async (which: "postmaster" | "backend"): Promise<void> => {
      if (which === "postmaster") return void (await end(postmaster!, "SIGKILL"));
      const [backend] = postgresBelow(postmaster!.child.pid!, /^postgres: postgres postgres /);
      signal(backend!, "SIGKILL");
    },
    signalAll: (name: "SIGSTOP" | "SIGCONT"): void => {
      const pid = postmaster!.child.pid!;
      signal(pid, name);
      for (const child of postgresBelow(pid)) signal(child, name);
    },
    stop: async (): Promise<void> =>
      void (postmaster?.isRunning() && (await end(postmaster, "SIGINT"))),
  };
  await database.start();
  return { database, url: cluster.urlOf("postgres") };
};

export type Site = Awaited<ReturnType<typeof makeSite>>;

/**
 * Makes a directory with everything that servers need besides their program, for two chatbots with a key each. It
 * outlives the servers that use it.
 */
export const makeSite = async () => {
  const directory = await mkdtemp(join(tmpdir(), "parley-faults-"));
  const provision = join(directory, "provision.json");
  const keys = (await makeKeys(2)) as [string, string];
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
    /** Settings for each server. */
    environment: {
      PARLEY_DATA_DIR: dataDir,
      PARLEY_PROVISION: provision,
      PARLEY_MANAGEMENT_PORT: "0",
      PARLEY_DRAIN_DELAY: "0 seconds",
    },
    /** Removes the files, which must no longer be in use. */
    remove: () => rm(directory, { recursive: true, force: true }),
  };
};

export type Server = Awaited<ReturnType<typeof makeServer>>;

/** The Node options that the installed command sets. */
const nodeOptions = ["--max-semi-space-size=16"];

/** A server on its own port, which it keeps across restarts. */
export const makeServer = async (
  site: Site,
  settings: Readonly<Record<string, string>>,
  options: ReadonlyArray<string> = ["--log-level", "all"],
) => {
  const port = await freePort();
  const baseUrl = `http://127.0.0.1:${port}/api`;
  const env = { ...site.environment, ...settings, PARLEY_PORT: String(port) };
  const runs: Array<Launch> = [];
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
      const run = launch(args, env, [process.execPath], { cwd: site.directory });
      runs.push(run);
      await until("The start of a server", async () => {
        if (!run.isRunning()) throw new Error(`The server did not start:\n${run.log()}`);
        return await isServing();
      });
    },
    kill: async () => void (await end(runs.at(-1)!, "SIGKILL")),
    /** Sends SIGTERM; resolves with the exit code. */
    stop: () => end(runs.at(-1)!, "SIGTERM"),
    signal: (name: "SIGSTOP" | "SIGCONT") => void runs.at(-1)!.child.kill(name),
    isRunning: () => runs.at(-1)?.isRunning() === true,
    pid: () => runs.at(-1)!.child.pid!,
    /** The output of every process that has run as this server, in the order of their starts. */
    log: () => runs.map((run) => run.log()).join("\n"),
  };
};

export interface Service {
  readonly site: Site;
  readonly model: Model;
  readonly servers: ReadonlyArray<Server>;
  /** `null` if the harness did not start a database. */
  readonly database: Awaited<ReturnType<typeof makePostgres>>["database"] | null;
  readonly stop: () => Promise<void>;
}

/**
 * Starts servers that share a file, a PostgreSQL of the harness, or the one at a URL. `settings` returns further
 * settings for a server, given its number and the address of the shared database.
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
        ...model.settings,
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
