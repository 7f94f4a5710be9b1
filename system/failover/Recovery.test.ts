/**
 * The recipes in docs/scaling.md for point-in-time recovery and for upgrading PostgreSQL, with traffic before and
 * after.
 */
import { execFileSync } from "node:child_process";
import { setTimeout as sleep } from "node:timers/promises";
import { afterAll, beforeAll, expect, inject, test } from "vitest";
import { startService, type Service } from "../../faults/Harness.ts";
import type { StoredRows } from "../../faults/Ledger.ts";
import { Traffic } from "../../faults/Traffic.ts";
import { fencesOf, read, sectionOf } from "../../test/docs/Fences.ts";
import { run, startCluster, until, type Cluster } from "./Cluster.ts";

let cluster: Cluster;
beforeAll(async () => {
  cluster = await startCluster();
}, 180_000);
afterAll(() => cluster?.stop(), 60_000);

const recipe = (heading: string) => sectionOf(read("docs/scaling.md"), heading);
const query = async (url: string, statement: string) =>
  (await run("psql", "-XAtq", "-v", "ON_ERROR_STOP=1", "-c", statement, url)).trim();

/** Sends traffic while `work` runs (by default, for three seconds); returns everything that is stored afterwards. */
const use = async (service: Service, work: () => Promise<unknown> = () => sleep(3000)) => {
  const traffic = new Traffic(service);
  const trafficEnd = traffic.run(3);
  await work().finally(() => traffic.stop());
  await trafficEnd;
  while (!traffic.isSettled()) await sleep(50);
  const stored = [await traffic.readAll(0), await traffic.readAll(1)];
  expect(traffic.ledger.violations).toEqual([]);
  return stored;
};

const readAll = async (service: Service) => {
  const traffic = new Traffic(service);
  return [await traffic.readAll(0), await traffic.readAll(1)];
};

const idsOf = (all: ReadonlyArray<StoredRows>) => ({
  chats: all.flatMap(({ chats }) => chats.map(({ id }) => id)),
  entries: all.flatMap(({ entries }) => [...entries.values()].flat().map(({ id }) => id)),
});

/** Checks that every id that is in `after` but not in `before` is greater than every id in `given`. */
const expectNewIds = (
  after: ReadonlyArray<StoredRows>,
  before: ReadonlyArray<StoredRows>,
  given: ReadonlyArray<StoredRows> = before,
) => {
  for (const kind of ["chats", "entries"] as const) {
    const formerIds = new Set(idsOf(before)[kind]);
    const fresh = idsOf(after)[kind].filter((id) => !formerIds.has(id));
    expect(fresh.length).toBeGreaterThan(0);
    expect(Math.min(...fresh)).toBeGreaterThan(Math.max(...idsOf(given)[kind]));
  }
};

test(
  "an upgrade from PostgreSQL 15 to 18 by logical replication keeps every row and reuses no id",
  {
    timeout: 240_000,
  },
  async () => {
    const steps = recipe("### A new version of PostgreSQL").replaceAll(/^ {3}/gm, "");
    const [publish, subscribe] = fencesOf(steps)
      .filter(({ info }) => info === "sql")
      .map(({ text }) => text) as [string, string];
    const owner = new URL(inject("postgresUrl"));
    const superuser = new URL(inject("roleUrls").superuser);
    // The schema's dump names its owner.
    [owner.username, owner.password] = ["parley", "hidden"];
    await query(superuser.href, "create role parley login password 'hidden'");
    await query(
      superuser.href,
      `create database upgraded owner ${owner.username} template template0 encoding 'UTF8' lc_collate 'C' lc_ctype 'C.UTF-8'`,
    );
    for (const url of [owner, superuser]) url.pathname = "upgraded";
    for (const name of ["pg_trgm", "btree_gin"])
      await query(superuser.href, `create extension ${name}`);

    const old = await startService(2, new URL(cluster.url));
    const stored = await use(old, async () => {
      await sleep(2000);
      await query(cluster.superuserUrl, publish);
      const schema = await run(
        ...(["pg_dump", "--schema-only", "--schema=parley", "--no-owner"] as const),
        cluster.superuserUrl,
      );
      execFileSync("psql", ["-Xq", "-v", "ON_ERROR_STOP=1", owner.href], {
        input: schema,
        stdio: ["pipe", "ignore", "inherit"],
      });
      const [host, port] = new URL(cluster.url).host.split(":") as [string, string];
      await query(superuser.href, subscribe.replace("old-db.example", host).replace("5432", port));
      await until("The first copy", async () => {
        const pendingTables = "select count(*) from pg_subscription_rel where srsubstate <> 'r'";
        return (await query(superuser.href, pendingTables)) === "0" || undefined;
      });
      await sleep(3000);
    });
    await old.stop();
    const end = await query(cluster.superuserUrl, "select pg_current_wal_lsn()");
    await until("The end of the replication", async () => {
      const behind = `select count(*) from pg_replication_slots where slot_name = 'parley' and confirmed_flush_lsn < '${end}'`;
      return (await query(cluster.superuserUrl, behind)) === "0" || undefined;
    });
    await query(superuser.href, "drop subscription parley");
    await query(superuser.href, "analyze");
    expect(await query(superuser.href, "show server_version")).toMatch(/^18/);

    const service = await startService(2, owner);
    try {
      expect(await readAll(service)).toEqual(stored);
      expectNewIds(await use(service), stored);
    } finally {
      await service.stop();
    }
  },
);

test(
  "a point-in-time restore brings back the rows of that time, and reuses no id assigned since",
  {
    timeout: 300_000,
  },
  async () => {
    const leader = await cluster.leader();
    await leader.run(
      "env",
      "PGPASSWORD=secret",
      "pg_basebackup",
      "--host=127.0.0.1",
      "--username=replicator",
      "--checkpoint=fast",
      `--pgdata=${cluster.backup}/base`,
    );
    const service = await startService(2, new URL(cluster.url), () => ({
      PARLEY_SCHEMA: "restored",
    }));
    const stored = await use(service);
    const time = await query(cluster.superuserUrl, "select clock_timestamp()");
    await sleep(1000);
    const later = await use(service);
    await service.stop();
    const segment = await query(cluster.superuserUrl, "select pg_walfile_name(pg_switch_wal())");
    await until("The archive", async () => {
      const archived = `select last_archived_wal >= '${segment}' from pg_stat_archiver`;
      return (await query(cluster.superuserUrl, archived)) === "t" || undefined;
    });

    for (const { signal } of cluster.machines) await signal("SIGKILL");
    const { text } = fencesOf(recipe("### Back to a point in time")).find(
      ({ info }) => info === "yaml",
    )!;
    const [scope, ...bootstrap] = text.replace(/(_time: ).*/, `$1"${time}"`).split("\n");
    for (const { configure, start } of cluster.machines) {
      await configure((yaml) =>
        yaml
          .replace("scope: parley", scope!)
          .replace("15/main", "15/restored")
          .replace("bootstrap:", bootstrap.join("\n")),
      );
      start();
    }
    await cluster.whole();

    const restored = await startService(2, new URL(cluster.url), () => ({
      PARLEY_SCHEMA: "restored",
    }));
    try {
      expect(await readAll(restored)).toEqual(stored);
      expectNewIds(await use(restored), stored, later);
    } finally {
      await restored.stop();
    }
  },
);
