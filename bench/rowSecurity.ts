/**
 * The cost of row security: two servers of Parley, one with it and one without, a database each, in
 * alternating rounds.
 *
 *   ../node_modules/.bin/node rowSecurity.ts [--rounds 5] [--seconds 4] [--only history]
 */
import { loadavg } from "node:os";
import { parseArgs } from "node:util";
import { migratePostgres } from "../packages/store-pg/src/index.ts";
import { grantsTo } from "../packages/store-pg/test/grants.ts";
import { Effect, Redacted } from "effect";
import { abort, stopAll } from "./harness/Children.ts";
import { startGenerator, type Measured } from "./harness/Load.ts";
import { startPostgres } from "./harness/Postgres.ts";
import { line, median } from "./harness/Report.ts";
import { assertSame, loadOf, type Scenario } from "./harness/Scenarios.ts";
import { startParley, type Running } from "./harness/Servers.ts";

const connections = 32;
const leadMillis = 1000;

const question = "What does the benchmark ask again and again?";

// Requests that add rows come last.
const scenarios: ReadonlyArray<Scenario> = [
  { name: "details", method: "GET", path: () => "/api/details", match: "bytes" },
  {
    name: "history",
    method: "GET",
    path: ({ longChat }) => `/api/chats/${longChat}/history`,
    match: "bytes",
  },
  { name: "chats", method: "GET", path: () => "/api/chats?page=50", match: "all but digits" },
  { name: "search", method: "GET", path: () => "/api/chats?search=hat", match: "all but digits" },
  {
    name: "search, page 50",
    method: "GET",
    path: () => "/api/chats?search=hat&page=50",
    match: "all but digits",
  },
  {
    name: "create",
    method: "POST",
    path: () => "/api/chats",
    body: { name: "Chat", userRef: "u-1" },
    match: "all but digits",
  },
  {
    name: "ask, new chat",
    method: "POST",
    path: () => "/ask/",
    body: { query: question },
    match: "all but digits",
  },
];

const main = async () => {
  const { values } = parseArgs({
    options: {
      rounds: { type: "string", default: "5" },
      seconds: { type: "string", default: "4" },
      only: { type: "string" },
    },
  });
  const rounds = Number(values.rounds);
  const seconds = Number(values.seconds);
  const chosen = scenarios.filter(({ name }) => values.only === undefined || name === values.only);
  const needed = 180 + chosen.length * rounds * 2 * (seconds + 5);
  setTimeout(() => void abort(`Not done after ${needed} s.`), needed * 1000).unref();

  const measure = startGenerator();
  const postgres = await startPostgres();
  const without = await postgres.createDatabase("without");
  const within = await postgres.createDatabase("within");
  const asBound = await postgres.createRole("parley_bound");
  await Effect.runPromise(migratePostgres({ url: Redacted.make(within) }));
  await postgres.run(within, grantsTo("parley_bound", "parley"));
  const common = { store: "postgres", profile: null } as const;
  const servers: ReadonlyArray<readonly [name: string, server: Running]> = [
    ["without", await startParley({ ...common, databaseUrl: without })],
    [
      "with",
      await startParley({
        ...common,
        databaseUrl: asBound(within),
        settings: { PARLEY_ROW_SECURITY: "true" },
      }),
    ],
  ];
  await postgres.settle([without, within]);
  console.log(
    `PostgreSQL ${postgres.version}, Node ${process.version}, ${connections} connections, ` +
      `${rounds} rounds of ${seconds} s, load ${loadavg()[0]!.toFixed(1)}`,
  );

  const round = async (scenario: Scenario, server: Running) => {
    const load = await loadOf(scenario, server);
    await postgres.checkpoint();
    return measure({ ...load, connections, leadMillis, millis: seconds * 1000 });
  };

  for (const scenario of chosen) {
    const [one, other] = [
      await loadOf(scenario, servers[0]![1]),
      await loadOf(scenario, servers[1]![1]),
    ];
    assertSame(scenario.name, one.expected, other.expected);
    const results = servers.map((): Array<Measured> => []);
    for (let i = 0; i < rounds; i++) {
      for (const at of i % 2 === 0 ? [0, 1] : [1, 0]) {
        results[at]!.push(await round(scenario, servers[at]![1]));
      }
    }
    console.log(`\n${scenario.name}`);
    for (const [at, [name]] of servers.entries()) console.log(line(name, results[at]!));
    const ratios = results[1]!.map(
      ({ requestsPerSecond }, i) => requestsPerSecond / results[0]![i]!.requestsPerSecond,
    );
    console.log(
      `  ratio      ${median(ratios).toFixed(2)}  (rounds ${Math.min(...ratios).toFixed(2)}` +
        ` to ${Math.max(...ratios).toFixed(2)})`,
    );
  }
};

try {
  await main();
  await stopAll();
} catch (error) {
  await abort(error instanceof Error ? error.message : String(error));
}
