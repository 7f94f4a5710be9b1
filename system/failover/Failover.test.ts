/**
 * Two servers on a PostgreSQL cluster of three machines, one of which fails under traffic and comes back.
 */
import { setTimeout as sleep } from "node:timers/promises";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { startService } from "../../faults/Harness.ts";
import { underTraffic } from "../../faults/Rounds.ts";
import { Traffic } from "../../faults/Traffic.ts";
import { startCluster, until, type Cluster, type Machine } from "./Cluster.ts";

const rounds = Number(process.env["PARLEY_FAILOVER_ROUNDS"] ?? 3);

/** The number of clients of each of the two chatbots. */
const clients = 6;

/** The most connections that a server may have, according to docs/operations.md. */
const connections = 12;

interface Fault {
  readonly strike: (machine: Machine) => Promise<void>;
  readonly heal: (machine: Machine) => void | Promise<void>;
}

const faults = {
  "is killed": { strike: ({ signal }) => signal("SIGKILL"), heal: ({ start }) => start() },
  "is frozen": {
    strike: ({ signal }) => signal("SIGSTOP"),
    heal: ({ signal }) => signal("SIGCONT"),
  },
  "loses its network": {
    strike: ({ unplug }) => unplug("cluster", "service"),
    heal: ({ plug }) => plug(),
  },
  // The servers still reach the old leader, which does not yet know that it is no longer the leader.
  "loses the other machines": {
    strike: ({ unplug }) => unplug("cluster"),
    heal: ({ plug }) => plug(),
  },
} satisfies Record<string, Fault>;

const cases = Array.from({ length: rounds }, (_, n) =>
  Object.entries(faults).map(([name, fault]) => [n + 1, name, fault] as const),
).flat();

let cluster: Cluster;
const report: Array<Record<string, unknown>> = [];

beforeAll(async () => {
  cluster = await startCluster();
}, 180_000);
afterAll(async () => {
  console.table(report);
  await cluster?.stop();
}, 60_000);

/** Starts two servers on a new schema. */
const startServers = async () => {
  await cluster.whole();
  const schema = `round_${performance.now().toFixed()}`;
  return await startService(2, new URL(cluster.url), () => ({ PARLEY_SCHEMA: schema }));
};

/** Counts each machine's backends until `end`, which returns the highest count on any one machine. */
const watchBackends = () => {
  let most = 0;
  const timer = setInterval(async () => {
    for (const { backends } of cluster.machines)
      most = Math.max(most, await backends().catch(() => 0));
  }, 300);
  return {
    end: () => {
      clearInterval(timer);
      return most;
    },
  };
};

/** Makes the leader fail; returns the milliseconds until Patroni has elected another. */
const failOver = async (leader: Machine, { strike }: Fault) => {
  const began = performance.now();
  await strike(leader);
  await cluster.leader(leader);
  return Math.round(performance.now() - began);
};

describe("in synchronous mode no acknowledged write is lost or duplicated, asks in a chat still take turns, and the servers recover within five seconds of Patroni", () => {
  const play = async (
    what: string,
    strike: () => Promise<{ readonly patroni: number; readonly heal: () => void | Promise<void> }>,
  ) => {
    const service = await startServers();
    const backends = watchBackends();
    let struck: Awaited<ReturnType<typeof strike>>;
    const { summary, violations } = await underTraffic(
      service,
      [
        ["strike", async () => (struck = await strike())],
        [
          "return",
          async ({ ledger }) => {
            // No failure of a request that is sent from here on is excused.
            ledger.weather = { calm: true };
            await struck.heal();
            await sleep(3000);
            await cluster.whole();
          },
        ],
      ],
      clients,
    );
    const { acknowledged, metFault, recovery } = summary;
    const most = backends.end();
    report.push({
      what,
      acknowledged,
      metFault,
      lost: violations.length,
      "Patroni, s": struck!.patroni / 1000,
      "and back, s": recovery["strike"]! / 1000,
      backends: most,
    });
    expect(violations.slice(0, 20)).toEqual([]);
    expect(metFault).toBeGreaterThan(0);
    expect(recovery["strike"]).toBeLessThan(5000);
    expect(most).toBeLessThanOrEqual(2 * connections);
  };

  test.for(cases)(
    "round %i: no acknowledged write is lost or duplicated when the leader %s",
    { timeout: 300_000 },
    ([, what, fault]) =>
      play(`the leader ${what}`, async () => {
        const leader = await cluster.leader();
        return { patroni: await failOver(leader, fault), heal: () => fault.heal(leader) };
      }),
  );

  test.for(Object.entries(faults))(
    "no acknowledged write is lost or duplicated when the synchronous standby %s",
    { timeout: 300_000 },
    ([what, fault]) =>
      play(`the standby ${what}`, async () => {
        const standby = (await cluster.synchronousStandby())!;
        const began = performance.now();
        await fault.strike(standby);
        await until("The choice of another standby", async () => {
          const next = await cluster.synchronousStandby();
          return next !== undefined && next !== standby ? next : undefined;
        });
        return {
          patroni: Math.round(performance.now() - began),
          heal: () => fault.heal(standby),
        };
      }),
  );
});

describe("in asynchronous mode writes can be lost, but no id is reused for another row", () => {
  beforeAll(() => cluster.setSynchronous(false), 180_000);

  test.for(cases)(
    "round %i: no id is reused for another row when the leader %s",
    { timeout: 300_000 },
    async ([, what, fault]) => {
      const service = await startServers();
      const traffic = new Traffic(service);
      const trafficEnd = traffic.run(clients);
      try {
        await sleep(5000);
        const leader = await cluster.leader();
        const patroni = await failOver(leader, fault);
        await Promise.all(service.servers.map((server) => traffic.works(server)));
        // Long enough to write more rows than were lost.
        await sleep(15_000);
        traffic.stop();
        await trafficEnd;
        await fault.heal(leader);

        const stored = new Map<string, string>();
        for (const tenant of [0, 1] as const) {
          const { chats, entries } = await traffic.readAll(tenant);
          for (const chat of chats) stored.set(`chat ${chat.id}`, JSON.stringify(chat));
          for (const entry of [...entries.values()].flat())
            stored.set(`entry ${entry.id}`, JSON.stringify(entry));
        }
        const acknowledged = traffic.ledger.requests.flatMap(({ acknowledged, kind }) => {
          if (acknowledged === null) return [];
          const { id } = JSON.parse(acknowledged.bytes) as { readonly id: number };
          return {
            row: `${kind === "create" ? "chat" : "entry"} ${id}`,
            bytes: acknowledged.bytes,
          };
        });
        const losses = acknowledged.filter(({ row }) => !stored.has(row));
        const another = acknowledged.filter(
          ({ bytes, row }) => stored.has(row) && stored.get(row) !== bytes,
        );
        report.push({
          what: `asynchronous: the leader ${what}`,
          acknowledged: acknowledged.length,
          lost: losses.length + another.length,
          "ids that came back": another.length,
          "Patroni, s": patroni / 1000,
        });
        expect(another.slice(0, 20)).toEqual([]);
      } finally {
        traffic.stop();
        await service.stop();
      }
    },
  );
});
