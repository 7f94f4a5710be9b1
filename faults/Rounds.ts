/**
 * A round consists of traffic with faults in the middle, followed by the ledger's checks.
 */
import { setTimeout as sleep } from "node:timers/promises";
import { startService, type Server, type Service } from "./Harness.ts";
import { marker } from "./Ledger.ts";
import { Traffic } from "./Traffic.ts";

/** Longer than a turn's lease and a statement's timeout, in milliseconds. */
const long = 12_500;

interface Fault {
  readonly store: "file" | "postgres";
  readonly strike: (service: Service, server: Server, traffic: Traffic) => Promise<unknown>;
}

const restart = async (server: Server) => {
  await server.kill();
  await server.start();
};

/** Freezes a server while it answers. When it resumes, its answers are ready, but other asks have taken the turns. */
const freeze: Fault["strike"] = async ({ servers }, server, traffic) => {
  const openAsks = () =>
    traffic.answering(server).filter((ask) => ask.chatId !== null && ask.idempotencyKey === null);
  while (openAsks().length === 0) await sleep(5);
  server.signal("SIGSTOP");
  const other = servers.find((candidate) => candidate !== server)!;
  const rivals = openAsks().map(({ chatId, tenant }) => traffic.ask(tenant, chatId!, other));
  await sleep(long);
  server.signal("SIGCONT");
  await Promise.all(rivals);
};

export const faults = {
  "kill one of two servers": { store: "postgres", strike: (_, server) => restart(server) },
  "freeze one of two servers": { store: "postgres", strike: freeze },
  "kill the database": {
    store: "postgres",
    strike: async ({ database }) => {
      await database!.kill("postmaster");
      await sleep(2000 * Math.random());
      await database!.start();
    },
  },
  "kill a connection's process": {
    store: "postgres",
    strike: ({ database }) => database!.kill("backend"),
  },
  "freeze the database": {
    store: "postgres",
    strike: async ({ database }) => {
      database!.signalAll("SIGSTOP");
      await sleep(long);
      database!.signalAll("SIGCONT");
    },
  },
  "kill one of two servers on a file": {
    store: "file",
    strike: (_, server) => restart(server),
  },
  "kill two servers on a file": {
    store: "file",
    strike: ({ servers }) => Promise.all(servers.map(restart)),
  },
  "freeze one of two servers on a file": { store: "file", strike: freeze },
  "drain a server": {
    store: "postgres",
    strike: async (_, server, traffic) => {
      while (traffic.answering(server).length === 0) await sleep(5);
      const openAsks = traffic.answering(server);
      const code = await server.stop();
      const { ledger } = traffic;
      if (code !== 0) ledger.violation(`a server ends with ${code} after SIGTERM`);
      await sleep(100);
      for (const request of openAsks) {
        if (request.acknowledged === null && request.disconnectedAt === null)
          ledger.violation("not answered before the server stopped", request);
      }
      await server.start();
    },
  },
} satisfies Record<string, Fault>;
export type FaultName = keyof typeof faults;

/** Runs the faults, which must all be for the same store, with {@link underTraffic}. */
export const round = async (names: ReadonlyArray<FaultName>) => {
  const { store } = faults[names[0]!];
  const service = await startService(2, store);
  const strikes = names.map((name) => {
    const victim = service.servers[Math.floor(Math.random() * service.servers.length)]!;
    return [name, (traffic: Traffic) => faults[name].strike(service, victim, traffic)] as const;
  });
  return await underTraffic(service, strikes);
};

/**
 * Runs the strikes one after the other in the middle of traffic, then stops the service. Returns the promises that were
 * broken and a summary. Its `recovery` has the milliseconds from the end of each strike until all servers work.
 */
export const underTraffic = async (
  service: Service,
  strikes: ReadonlyArray<readonly [name: string, (traffic: Traffic) => Promise<unknown>]>,
  clients = 8,
) => {
  const traffic = new Traffic(service);
  const { ledger } = traffic;
  const recovery: Record<string, number> = {};
  try {
    const clientsEnd = traffic.run(clients);
    await sleep(2000);
    for (const [name, strike] of strikes) {
      ledger.weather = { calm: false };
      await strike(traffic);
      const times = await Promise.all(service.servers.map((server) => traffic.works(server)));
      ledger.weather = { calm: true };
      recovery[name] = Math.max(...times);
      await sleep(1500 + 1000 * Math.random());
    }
    traffic.stop();
    await clientsEnd;
    while (!traffic.isSettled()) await sleep(50);
    await sleep(500);

    const readAll = async () => [await traffic.readAll(0), await traffic.readAll(1)] as const;
    await traffic.repeat(await readAll());
    const storedRows = await readAll();
    const calls = Map.groupBy(service.model.calls, ({ question }) => question);
    for (const tenant of [0, 1] as const) ledger.check(tenant, storedRows[tenant], calls);
    const [first] = service.servers as readonly [Server];
    if ((await first.stop()) !== 0) ledger.violation("a server does not end with 0 after SIGTERM");
    await first.start();
    const bytes = (all: typeof storedRows) =>
      JSON.stringify(
        all.map(({ chats, entries }) => [chats, [...entries].toSorted(([a], [b]) => a - b)]),
      );
    if (bytes(await readAll()) !== bytes(storedRows))
      ledger.violation("a restart changes what is read");
    for (const server of service.servers) {
      const lines = server
        .log()
        .split("\n")
        .filter((line) => line.includes(marker) || /defect/i.test(line));
      for (const line of lines) ledger.violation(`in a log: ${line}`);
    }
    const acknowledged = ledger.requests.filter((request) => request.acknowledged !== null).length;
    return {
      violations: ledger.violations,
      summary: {
        requests: ledger.requests.length,
        acknowledged,
        metFault: ledger.requests.filter(({ metFault }) => metFault).length,
        calls: service.model.calls.length,
        recovery,
      },
    };
  } finally {
    traffic.stop();
    await service.stop();
  }
};
