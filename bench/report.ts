/**
 * Rewrites the documentation's figures and plots from the last run: use `node report.ts`, or `--write` with `run.ts`.
 */
import { execFileSync } from "node:child_process";
import { readFileSync, writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { barPlot } from "./harness/Plot.ts";
import { cpuOf, type Figures, type Result, type Run } from "./harness/Report.ts";
import { lacks, titles, type ServerName } from "./harness/Servers.ts";

const pathOf = (path: string) => fileURLToPath(new URL(path, import.meta.url));
const lastRun = pathOf("results.json");
const documents = [pathOf("../docs/performance.md"), pathOf("../README.md")];

const titleOf = (server: string): string => titles[server as ServerName];
const plural = (connections: number) =>
  `${connections} ${connections === 1 ? "connection" : "connections"}`;
const count = (value: number): string =>
  value < 100 ? value.toFixed(1) : Math.round(value).toLocaleString("en-US");

const table = (head: ReadonlyArray<string>, rows: ReadonlyArray<ReadonlyArray<string>>): string =>
  [head, head.map((_, at) => (at === 0 ? "---" : "---:")), ...rows]
    .map((cells) => `| ${cells.join(" | ")} |`)
    .join("\n");

/** The servers that were measured, in the order in which reports list them. */
const serversIn = (results: ReadonlyArray<Result>): ReadonlyArray<ServerName> =>
  (Object.keys(titles) as Array<ServerName>).filter((name) =>
    results.some(({ figures }) => figures.some(({ server }) => server === name)),
  );

/** A table with a column for each server. */
const comparisonTable = (
  servers: ReadonlyArray<ServerName>,
  results: ReadonlyArray<Result>,
  cell: (figures: Figures) => string,
): string =>
  table(
    ["request", "connections", ...servers.map(titleOf)],
    results.map(({ connections, figures, scenario }) => [
      scenario,
      String(connections),
      ...servers.map((name) => {
        const own = figures.find(({ server }) => server === name);
        return own === undefined ? "" : cell(own);
      }),
    ]),
  );

/** A plot of CPU time, in units of `micros` microseconds. */
const cpuPlot = (title: string, micros: number, results: ReadonlyArray<Result>): string =>
  barPlot(
    title,
    "Dark: the server. Light: PostgreSQL.",
    results.map(({ figures, scenario }) => ({
      label: scenario,
      bars: figures.map(({ postgresMicros, server, serverMicros }) => ({
        name: titleOf(server),
        parts: [serverMicros / micros, postgresMicros / micros],
      })),
    })),
    serversIn(results).map(titleOf),
  );

const asksPlot = (results: ReadonlyArray<Result>): string => {
  const servers = ["parley", "fastify", "care"] as const;
  const asksOf = (name: string, at: number, server: ServerName): number =>
    results
      .find(({ connections, scenario }) => scenario === name && connections === at)!
      .figures.find((row) => row.server === server)!.perSecond;
  return barPlot(
    "Asks a second",
    "Light: with Idempotency-Key, which only Parley keeps.",
    results
      .filter(({ scenario }) => scenario === "ask")
      .map(({ connections }) => ({
        label: plural(connections),
        bars: [
          ...servers.map((server) => ({
            name: titleOf(server),
            parts: [asksOf("ask", connections, server), 0] as const,
          })),
          {
            name: titleOf("parley"),
            parts: [0, asksOf("ask with Idempotency-Key", connections, "parley")] as const,
          },
        ],
      })),
    servers.map(titleOf),
  );
};

/** The rows and columns of README.md's table: the costly cases beside the common ones. */
const summaryServers = ["parley", "file", "fastify", "care"] as const;
const isInSummary = ({ connections, scenario }: Result): boolean =>
  connections === 32
    ? !scenario.includes("streamed")
    : /one chat|model$/.test(scenario) || (connections === 1 && !scenario.includes("Key"));

export const writeReport = (run: Run): void => {
  const { machine, node, postgres, results, rounds, seconds, starts } = run;
  const servers = serversIn(results);
  const isLong = ({ scenario }: Result) => /streamed|model/.test(scenario);
  const at32 = results.filter((result) => result.connections === 32 && !isLong(result));
  const plots: Readonly<Record<string, string>> = {
    "performance-cpu.svg": cpuPlot("CPU time of a request, microseconds, 32 connections", 1, at32),
    "performance-asks.svg": asksPlot(results),
    "performance-streams.svg": cpuPlot(
      "CPU time of a long answer, milliseconds",
      1000,
      results.filter(isLong),
    ),
  };
  for (const [name, svg] of Object.entries(plots)) {
    writeFileSync(pathOf(`../docs/pictures/${name}`), svg);
  }

  const megabytes = (bytes: number) => `${Math.round(bytes / 1e6)} MB`;
  const sections: Readonly<Record<string, string>> = {
    machine: `${machine}. PostgreSQL ${postgres}, Node ${node}. Medians of ${rounds} rounds of ${seconds} s.`,
    servers: table(
      ["server", "what it leaves out"],
      Object.entries(lacks).map(([name, text]) => [titleOf(name), text]),
    ),
    throughput: comparisonTable(servers, results, ({ perSecond }) => count(perSecond)),
    cpu: comparisonTable(servers, results, (figures) => count(cpuOf(figures))),
    p99: comparisonTable(servers, results, ({ p99Millis }) =>
      p99Millis.toFixed(p99Millis < 100 ? 1 : 0),
    ),
    starts: table(
      ["server", "start", "memory when idle", "after a burst of asks", "at most"],
      starts.map(({ idle, loaded, peak, server, startMillis }) => [
        titleOf(server),
        `${Math.round(startMillis)} ms`,
        ...[idle, loaded, peak].map(megabytes),
      ]),
    ),
    summary: comparisonTable(
      summaryServers,
      results.filter(isInSummary),
      (figures) => `${count(figures.perSecond)} · ${count(cpuOf(figures))} µs`,
    ),
  };
  for (const path of documents) {
    const text = readFileSync(path, "utf8").replace(
      /(\[figures\]: # "(?!end)(\w+)"\n)[^]*?(\[figures\]: # "end")/g,
      (_, start: string, name: string, end: string) => `${start}\n${sections[name]}\n\n${end}`,
    );
    writeFileSync(path, text);
  }
  execFileSync(pathOf("../node_modules/.bin/oxfmt"), ["--write", ...documents]);
};

export const saveRun = (run: Run): void => writeFileSync(lastRun, JSON.stringify(run, null, 1));

if (import.meta.main) writeReport(JSON.parse(readFileSync(lastRun, "utf8")));
