/**
 * Measures servers in alternating rounds. See README.md.
 */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { cpus, loadavg, release, totalmem } from "node:os";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { abort, own, stopAll } from "./harness/Children.ts";
import { memoryOf } from "./harness/Cpu.ts";
import { startGenerator, type Expected, type Measurement } from "./harness/Load.ts";
import { startPostgres } from "./harness/Postgres.ts";
import {
  figuresOf,
  linesOf,
  medians,
  startLine,
  type Result,
  type StartFigures,
} from "./harness/Report.ts";
import { assertSame, loadOf, scenarios, type Scenario } from "./harness/Scenarios.ts";
import {
  createChats,
  lacks,
  prepareServer,
  startServer,
  titles,
  type Server,
  type ServerName,
} from "./harness/Servers.ts";
import { saveRun, writeReport } from "./report.ts";

const leadMillis = 1000;

const { values: options } = parseArgs({
  options: {
    rounds: { type: "string", default: "5" },
    seconds: { type: "string", default: "3" },
    only: { type: "string", default: "" },
    servers: { type: "string" },
    against: { type: "string" },
    mastra: { type: "boolean", default: false },
    write: { type: "boolean", default: false },
  },
});
const { against } = options;
const rounds = Number(options.rounds);
const seconds = Number(options.seconds);
const only = new RegExp(options.only);

const defaultNames = against === undefined ? "floor,fastify,care,parley,file" : "against,parley";
const serverNames = new Set((options.servers ?? defaultNames).split(","));
if (options.mastra) serverNames.add("mastra");

const checkOptions = (): void => {
  const unknown = [...serverNames].filter((name) => !(name in titles));
  if (unknown.length > 0) throw new Error(`The servers are ${Object.keys(titles).join(", ")}.`);
  if (serverNames.has("against") && against === undefined) {
    throw new Error("--against <folder> names the other checkout.");
  }
  if (!(rounds >= 1) || !(seconds >= 1)) throw new Error("--rounds and --seconds are at least 1.");
  if (options.write && (options.only !== "" || against !== undefined)) {
    throw new Error(
      "--write rewrites all figures, so it cannot be combined with --only or --against.",
    );
  }
};

const labelOf = ({ name }: Scenario, connections: number) =>
  `${name}, ${connections} ${connections === 1 ? "connection" : "connections"}`;
const startLabel = "start and memory of the installed server";

const describeMachine = (): string => {
  const [cpu] = cpus();
  const gigabytes = Math.round(totalmem() / 2 ** 30);
  return `${cpu!.model}, ${cpus().length} cores, ${gigabytes} GiB of memory, Linux ${release()}`;
};

const startModel = async (): Promise<string> => {
  const program = fileURLToPath(new URL("harness/Model.ts", import.meta.url));
  const child = spawn(process.execPath, [program], {
    stdio: ["ignore", "pipe", "inherit"],
    detached: true,
  });
  own("The model", child, "SIGTERM");
  const [port] = await once(child.stdout, "data");
  return `http://127.0.0.1:${Number(port)}/v1`;
};

/** Runs the rounds for all servers, which take turns at going first. */
const alternate = async <Key, A>(
  keys: ReadonlyArray<Key>,
  round: (key: Key) => Promise<A>,
): Promise<ReadonlyMap<Key, ReadonlyArray<A>>> => {
  const all = new Map(keys.map((key): [Key, Array<A>] => [key, []]));
  for (let i = 0; i < rounds; i++) {
    const at = i % keys.length;
    for (const key of [...keys.slice(at), ...keys.slice(0, at)])
      all.get(key)!.push(await round(key));
  }
  return all;
};

const main = async (): Promise<void> => {
  checkOptions();
  const [load] = loadavg();
  if (load! > 0.5) {
    console.log(
      `This machine is busy with other work (load ${load!.toFixed(1)}): figures will vary.`,
    );
  }
  const selection = scenarios.flatMap((scenario) => {
    const connections = scenario.connections.filter((n) => only.test(labelOf(scenario, n)));
    return connections.length === 0 ? [] : [{ ...scenario, connections }];
  });
  const measure = startGenerator();
  const postgres = await startPostgres();
  console.log(
    `PostgreSQL ${postgres.version}, Node ${process.version}, ${rounds} rounds of ${seconds} s\n`,
  );
  for (const [name, text] of Object.entries(lacks)) {
    if (serverNames.has(name)) console.log(`${name}: ${text}\n`);
  }

  let busiest = 0;
  const round = async (
    scenario: Scenario,
    connections: number,
    server: Server,
  ): Promise<Measurement> => {
    const load = await loadOf(scenario, server);
    await postgres.checkpoint();
    const measurement = await measure({
      ...load,
      connections,
      leadMillis,
      millis: seconds * 1000,
      pids: { server: server.pid, postgres: postgres.pid },
    });
    busiest = Math.max(busiest, measurement.generatorBusy);
    return measurement;
  };

  const compare = async (
    scenario: Scenario,
    connections: number,
    servers: ReadonlyArray<Server>,
  ): Promise<Result> => {
    const all = await alternate(servers, (server) => round(scenario, connections, server));
    const order = Object.keys(titles);
    const figures = [...all]
      .map(([{ name }, measurements]) => figuresOf(name, measurements))
      .toSorted((a, b) => order.indexOf(a.server) - order.indexOf(b.server));
    return { scenario: scenario.name, connections, figures };
  };

  const print = (label: string, { figures }: Result): void => {
    const ofServer = (name: ServerName) => figures.find(({ server }) => server === name);
    const reference = ofServer("fastify") ?? ofServer("against") ?? ofServer("parley");
    console.log([label, ...linesOf(figures, reference), ""].join("\n"));
  };

  /** Measures how long installed servers take to start, and their memory before and after a burst of asks. */
  const compareStarts = async (): Promise<ReadonlyArray<StartFigures>> => {
    const names = (["parley", "against", "fastify"] as const).filter((name) =>
      serverNames.has(name),
    );
    const ask = scenarios.find(({ name }) => name === "ask")!;
    const starts = new Map<ServerName, () => Promise<Server>>();
    for (const name of names) {
      const setUp = { postgres, answers: "at once", modelUrl: null, against } as const;
      const start = await prepareServer(name, setUp, true);
      starts.set(name, start);
      // The first start migrates the database and fills the compile cache.
      await (await start()).stop();
    }
    const all = await alternate(names, async (name) => {
      const server = await starts.get(name)!();
      await sleep(1000);
      const idle = memoryOf(server.pid).now;
      await round(ask, 32, await createChats(server, 32));
      await sleep(1000);
      const { now: loaded, peak } = memoryOf(server.pid);
      await server.stop();
      return { startMillis: server.startMillis, idle, loaded, peak };
    });
    const figures = [...all].map(([server, measurements]) => ({
      server,
      ...medians(["startMillis", "idle", "loaded", "peak"], measurements),
    }));
    console.log([startLabel, ...figures.map(startLine), ""].join("\n"));
    return figures;
  };

  const results: Array<Result> = [];
  for (const answers of ["at once", "from documents", "by a model"] as const) {
    const group = selection.filter((scenario) => (scenario.answers ?? "at once") === answers);
    const names = (Object.keys(titles) as Array<ServerName>).filter(
      (name) => serverNames.has(name) && group.some(({ servers }) => servers.includes(name)),
    );
    if (names.length === 0) continue;
    const setUp = {
      postgres,
      answers,
      modelUrl: answers === "by a model" ? await startModel() : null,
      against,
    };
    const servers: Array<Server> = [];
    for (const name of names) servers.push(await startServer(name, setUp));
    await postgres.settle();
    for (const scenario of group) {
      const participants = servers.filter(({ name }) => scenario.servers.includes(name));
      if (participants.length === 0) continue;
      const responses = new Map<Server, Expected>();
      for (const server of participants) {
        responses.set(server, (await loadOf(scenario, server)).expected);
      }
      assertSame(scenario, responses);
      for (const connections of scenario.connections) {
        const result = await compare(scenario, connections, participants);
        results.push(result);
        print(labelOf(scenario, connections), result);
      }
    }
    for (const { stop } of servers) await stop();
  }
  const starts = only.test(startLabel) ? await compareStarts() : [];
  console.log(`The generator used at most ${(100 * busiest).toFixed(0)} % of a core.`);

  const machine = describeMachine();
  const versions = { postgres: postgres.version, node: process.versions.node };
  const run = { machine, ...versions, rounds, seconds, results, starts };
  saveRun(run);
  if (options.write) writeReport(run);
};

try {
  await main();
  await stopAll();
  process.exit(0);
} catch (error) {
  await abort(error instanceof Error ? error.message : String(error));
}
