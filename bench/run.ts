/**
 * Measures servers in alternating rounds. See README.md.
 */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { rmSync } from "node:fs";
import { cpus, loadavg, release, totalmem } from "node:os";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { abort, own, stopAll } from "./harness/Children.ts";
import { memoryOf } from "./harness/Cpu.ts";
import { startGenerator, type Measured } from "./harness/Load.ts";
import { startPostgres } from "./harness/Postgres.ts";
import { profileClock, topFunctions } from "./harness/Profile.ts";
import {
  figuresOf,
  linesOf,
  median,
  missed,
  ratiosOf,
  startLine,
  type Result,
  type Run,
  type StartFigures,
} from "./harness/Report.ts";
import { assertSame, loadOf, scenarios, type Scenario } from "./harness/Scenarios.ts";
import {
  createChats,
  installedStart,
  lacks,
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
    "row-security": { type: "boolean", default: false },
    profile: { type: "boolean", default: false },
    write: { type: "boolean", default: false },
  },
});
const rounds = Number(options.rounds);
const seconds = Number(options.seconds);
const only = new RegExp(options.only);
if (options.write && (options.only !== "" || options.against !== undefined)) {
  throw new Error(
    "--write rewrites all figures, so it measures all: without --only and --against.",
  );
}

const labelOf = ({ name }: Scenario, connections: number) =>
  `${name}, ${connections} ${connections === 1 ? "connection" : "connections"}`;

const selectedServers = (): ReadonlySet<string> => {
  if (options.servers !== undefined) return new Set(options.servers.split(","));
  if (options.profile) return new Set(["parley"]);
  if (options.against !== undefined) return new Set(["against", "parley"]);
  if (options["row-security"]) return new Set(["parley", "row-security"]);
  return new Set(["floor", "fastify", "care", "parley", ...(options.mastra ? ["mastra"] : [])]);
};

const startLabel = "start and memory of the installed server";

const describeMachine = (): string => {
  const [cpu] = cpus();
  const gigabytes = Math.round(totalmem() / 2 ** 30);
  return `${cpu!.model}, ${cpus().length} cores, ${gigabytes} GiB of memory, Linux ${release()}`;
};

const startModel = async (): Promise<string> => {
  const child = spawn(
    process.execPath,
    [fileURLToPath(new URL("harness/Model.ts", import.meta.url))],
    { stdio: ["ignore", "pipe", "inherit"], detached: true },
  );
  own("The model", child, "SIGTERM");
  const [port] = await once(child.stdout, "data");
  return `http://127.0.0.1:${Number(port)}/v1`;
};

const main = async (): Promise<boolean> => {
  const [load] = loadavg();
  if (load! > 0.5) {
    console.log(
      `Other work is done on this machine (load ${load!.toFixed(1)}): figures will vary.`,
    );
  }
  const selected = selectedServers();
  const chosen = scenarios.flatMap((scenario) => {
    const connections = scenario.connections.filter((n) => only.test(labelOf(scenario, n)));
    return connections.length === 0 ? [] : [{ ...scenario, connections }];
  });
  const measure = startGenerator();
  const postgres = await startPostgres();
  console.log(
    `PostgreSQL ${postgres.version}, Node ${process.version}, ${rounds} rounds of ${seconds} s\n`,
  );
  for (const [name, text] of Object.entries(lacks)) {
    if (selected.has(name)) console.log(`${name}: ${text}\n`);
  }
  const results: Array<Result> = [];
  const started: Array<StartFigures> = [];
  let met = true;
  let busiest = 0;

  const round = async (scenario: Scenario, connections: number, server: Server) => {
    const load = await loadOf(scenario, server);
    await postgres.checkpoint();
    const measured = await measure({
      ...load,
      connections,
      leadMillis,
      millis: seconds * 1000,
      pids: { server: server.pid, postgres: postgres.pid },
    });
    busiest = Math.max(busiest, measured.generatorBusy);
    return measured;
  };

  const compare = async (
    scenario: Scenario,
    connections: number,
    servers: ReadonlyArray<Server>,
  ) => {
    const measured = new Map(servers.map((server): [Server, Array<Measured>] => [server, []]));
    for (let i = 0; i < rounds; i++) {
      // Each goes first now and then.
      const at = i % servers.length;
      for (const server of [...servers.slice(at), ...servers.slice(0, at)]) {
        measured.get(server)!.push(await round(scenario, connections, server));
      }
    }
    const order = Object.keys(titles);
    const figures = servers
      .map((server) => figuresOf(server.name, measured.get(server)!))
      .toSorted((a, b) => order.indexOf(a.server) - order.indexOf(b.server));
    const named = (name: ServerName) => figures.find(({ server }) => server === name);
    results.push({ scenario: scenario.name, connections, figures });
    console.log(labelOf(scenario, connections));
    const reference = named("fastify") ?? named("against") ?? named("parley");
    for (const line of linesOf(figures, reference)) console.log(line);
    const [parley, peer, goal] = [named("parley"), named("fastify"), scenario.goals?.[connections]];
    if (parley !== undefined && peer !== undefined && goal !== undefined) {
      const failures = missed(ratiosOf(parley, peer), goal);
      if (failures.length > 0) met = false;
      console.log(failures.length === 0 ? "  goal met" : `  MISSED: ${failures.join(", ")}`);
    }
    console.log();
  };

  const profile = async (scenario: Scenario, connections: number): Promise<void> => {
    const file = fileURLToPath(new URL("parley.cpuprofile", import.meta.url));
    rmSync(file, { force: true });
    const modelUrl = scenario.answers === "at once" ? null : await startModel();
    const server = await startServer("parley", { postgres, modelUrl, profile: file }, undefined);
    await postgres.settle();
    const from = profileClock();
    const measured = await round(scenario, connections, server);
    const to = profileClock();
    await server.stop();
    console.log(`${labelOf(scenario, connections)}, profiled`);
    for (const line of linesOf([figuresOf(server.name, [measured])], undefined)) console.log(line);
    for (const line of topFunctions(file, from, to, 30)) console.log(`  ${line}`);
    console.log(`  Whole profile: ${file}\n`);
  };

  /** Servers as they are installed: how long a start takes, and memory before and after a burst of asks. */
  const compareStarts = async (names: ReadonlyArray<ServerName>): Promise<void> => {
    const setUp = { postgres, modelUrl: null };
    const starts = new Map<ServerName, Awaited<ReturnType<typeof installedStart>>>();
    for (const name of names) {
      const start = await installedStart(name, setUp, options.against);
      starts.set(name, start);
      // The first start migrates the database, and fills the cache of compiled code.
      await (await start()).stop();
    }
    const measured = new Map(names.map((name): [ServerName, Array<StartFigures>] => [name, []]));
    for (let i = 0; i < rounds; i++) {
      for (const name of i % 2 === 0 ? names : names.toReversed()) {
        const started = await starts.get(name)!();
        await sleep(1000);
        const idle = memoryOf(started.pid).now;
        const server = await createChats(started, 32);
        await round(
          scenarios.find((scenario) => scenario.name === "ask")!,
          32,
          server,
        );
        await sleep(1000);
        const { now: loaded, peak } = memoryOf(server.pid);
        const { startMillis } = server;
        measured.get(name)!.push({ server: name, startMillis, idle, loaded, peak });
        await server.stop();
      }
    }
    console.log(startLabel);
    for (const [server, rounds] of measured) {
      const of = (figure: "startMillis" | "idle" | "loaded" | "peak") =>
        median(rounds.map((round) => round[figure]));
      const figures = {
        server,
        startMillis: of("startMillis"),
        idle: of("idle"),
        loaded: of("loaded"),
        peak: of("peak"),
      };
      started.push(figures);
      console.log(startLine(figures));
    }
    console.log();
  };

  if (options.profile) {
    for (const scenario of chosen) {
      for (const connections of scenario.connections) await profile(scenario, connections);
    }
    return true;
  }

  for (const answers of ["at once", "by a model"] as const) {
    const group = chosen.filter((scenario) => scenario.answers === answers);
    const names = new Set(
      group.flatMap(({ servers }) => servers.filter((name) => selected.has(name))),
    );
    if (names.size === 0) continue;
    const setUp = { postgres, modelUrl: answers === "at once" ? null : await startModel() };
    const servers: Array<Server> = [];
    for (const name of names) servers.push(await startServer(name, setUp, options.against));
    await postgres.settle();
    for (const scenario of group) {
      const compared = servers.filter(({ name }) => scenario.servers.includes(name));
      const responses = new Map<Server, Awaited<ReturnType<typeof loadOf>>["expected"]>();
      for (const server of compared)
        responses.set(server, (await loadOf(scenario, server)).expected);
      assertSame(scenario, responses);
      for (const connections of scenario.connections)
        await compare(scenario, connections, compared);
    }
    for (const { stop } of servers) await stop();
  }
  if (only.test(startLabel)) {
    const names = (["fastify", "against", "parley"] as const).filter((name) => selected.has(name));
    await compareStarts(names);
  }
  console.log(`The generator used at most ${(100 * busiest).toFixed(0)} % of a core.`);
  const run: Run = {
    machine: describeMachine(),
    postgres: postgres.version,
    node: process.versions.node,
    rounds,
    seconds,
    results,
    starts: started,
  };
  saveRun(run);
  if (options.write) writeReport(run);
  return met;
};

try {
  const met = await main();
  await stopAll();
  process.exit(met ? 0 : 1);
} catch (error) {
  await abort(error instanceof Error ? error.message : String(error));
}
