/**
 * A server with its own database, a slow language model, and more load than the server can handle.
 */
import { fork } from "node:child_process";
import { once } from "node:events";
import { readFile } from "node:fs/promises";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { startTestModel } from "../apps/server/test/TestModel.ts";
import { makeServer, makeSite } from "./Harness.ts";
import type { Load, Report } from "./FloodLoad.ts";

/** Starts the server, its model and the load generator. `measure` runs a load against the server. */
export const startFlood = async (modelMillis: number) => {
  const site = await makeSite();
  const model = await startTestModel(async ({ end, say }) => {
    await sleep(modelMillis);
    say("Fine, thank you.");
    end();
  });
  const server = await makeServer(site, model.settings, []);
  await server.start();
  const load = fork(fileURLToPath(new URL("FloodLoad.ts", import.meta.url)));
  const port = Number(new URL(server.baseUrl).port);
  let megabytes = 0;
  const watch = setInterval(() => {
    readFile(`/proc/${server.pid()}/status`, "utf8").then(
      (status) =>
        (megabytes = Math.max(megabytes, Number(/VmRSS:\s+(\d+)/.exec(status)![1]) / 1024)),
      () => {},
    );
  }, 200);
  return {
    /** How many questions the model has received. */
    calls: () => model.received.length,
    server,
    /** The most memory that the server has used, in megabytes; 0 where the system does not report it. */
    megabytes: () => Math.round(megabytes),
    measure: async (what: Omit<Load, "port" | "keys">): Promise<Report> => {
      load.send({ ...what, port, keys: site.keys } satisfies Load);
      const [report] = (await once(load, "message")) as [Report];
      return report;
    },
    stop: async () => {
      clearInterval(watch);
      load.disconnect();
      await server.stop();
      model.close();
      await site.remove();
    },
  };
};
