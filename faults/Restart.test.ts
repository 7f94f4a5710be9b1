import { expect, test } from "vitest";
import { audit } from "./Audit.ts";
import { creates, patience, seed } from "./Amount.ts";
import { readEverything } from "./Everything.ts";
import { makeLedger } from "./Ledger.ts";
import { killProcess, postmasterOf } from "./Postgres.ts";
import { randomOf } from "./Random.ts";
import { startServer, type Server } from "./Server.ts";
import { makeSite } from "./Site.ts";
import { makeProgress, runTraffic } from "./Traffic.ts";

test(
  `restarts keep every chat and history, byte for byte (seed ${seed})`,
  async () => {
    const site = await makeSite();
    const ledger = makeLedger();
    let server: Server = await startServer(site);
    try {
      const service = { server: Promise.resolve(server), deaths: 0 };
      await runTraffic(site, service, ledger, creates, randomOf(seed), makeProgress());
      const audited = await audit(site, server, ledger);
      expect(audited.violations).toEqual([]);
      expect(audited.acknowledged).toBe(creates);
      const before = await readEverything(site, server);

      await server.stop();
      server = await startServer(site);
      expect((await readEverything(site, server)).bytes).toBe(before.bytes);

      await server.kill();
      server = await startServer(site);
      expect((await readEverything(site, server)).bytes).toBe(before.bytes);
      await server.stop();
    } finally {
      await server.kill();
      const left = postmasterOf(site);
      if (left !== null) killProcess(left);
      await site.remove();
    }
  },
  patience,
);
