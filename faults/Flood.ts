/**
 * A server with its own database, a slow language model, and more load than the server can handle.
 */
import { fork } from "node:child_process";
import { once } from "node:events";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { readFile } from "node:fs/promises";
import { fileURLToPath } from "node:url";
import { makeServer, makeSite } from "./Harness.ts";
import type { Load, Report } from "./FloodLoad.ts";

const piece = (delta: object, finish_reason: string | null = null) =>
  `data: ${JSON.stringify({
    id: "m",
    object: "chat.completion.chunk",
    created: 1,
    model: "m",
    choices: [{ index: 0, delta, finish_reason }],
  })}\n\n`;
const completion = `${piece({ role: "assistant", content: "Fine, thank you." })}${piece({}, "stop")}data: [DONE]\n\n`;

/** A model that takes this many milliseconds to give every question the same answer, and counts its calls. */
const startSteadyModel = async (millis: number) => {
  let calls = 0;
  const server = createServer((request, response) => {
    calls++;
    request.resume();
    setTimeout(
      () => response.writeHead(200, { "content-type": "text/event-stream" }).end(completion),
      millis,
    );
  });
  server.keepAliveTimeout = 60_000;
  await once(server.listen({ port: 0, host: "127.0.0.1", backlog: 4096 }), "listening");
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/v1`;
  return {
    calls: () => calls,
    environment: { PARLEY_LLM_BASE_URL: url, PARLEY_LLM_MODEL: "m" },
    close: () => {
      server.close();
      server.closeAllConnections();
    },
  };
};

/** Starts the server, its model and the load generator. `measure` runs a load against the server. */
export const startFlood = async (modelMillis: number) => {
  const site = await makeSite();
  const model = await startSteadyModel(modelMillis);
  const server = await makeServer(site, model.environment, []);
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
    model,
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
