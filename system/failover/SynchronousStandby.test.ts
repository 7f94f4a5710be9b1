import { setTimeout as sleep } from "node:timers/promises";
import { expect, inject, test } from "vitest";
import { startSlowModel } from "../../apps/server/test/TestModel.ts";
import { exchange } from "../../faults/Client.ts";
import { startService } from "../../faults/Harness.ts";
import { run } from "./Cluster.ts";

test(
  "an answer that has not reached the synchronous standby is withheld even from a retry",
  {
    timeout: 60_000,
  },
  async () => {
    const superuser = inject("roleUrls").superuser;
    /** Makes commits wait for a standby with that name, or for none if the name is empty. */
    const setStandby = async (name: string) => {
      for (const statement of [
        `alter system set synchronous_standby_names = '${name}'`,
        "select pg_reload_conf()",
      ])
        await run("psql", "-Xqc", statement, superuser);
      await sleep(500);
    };
    const model = await startSlowModel(() => sleep(2000));
    const service = await startService(1, new URL(inject("postgresUrl")), () => ({
      ...model.settings,
      PARLEY_SCHEMA: "synchronous",
    }));
    const [server] = service.servers;
    const ask = () =>
      exchange({
        url: server!.askUrl,
        key: service.site.keys[0],
        body: { query: "Is it stored?" },
        headers: { "idempotency-key": "only" },
        patience: 15_000,
      });
    try {
      const first = ask();
      while (model.calls() === 0) await sleep(20);
      await setStandby("away");
      expect((await first).text).toContain("STORAGE_UNAVAILABLE");
      // PostgreSQL committed the answer locally when the statement was cancelled at the deadline.
      expect((await ask()).status).not.toBe(201);
      await setStandby("");
      const replay = await ask();
      expect([replay.status, replay.replayed, model.calls()]).toEqual([201, true, 1]);
    } finally {
      await setStandby("");
      await service.stop();
      model.close();
    }
  },
);
