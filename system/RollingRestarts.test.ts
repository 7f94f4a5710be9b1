/**
 * Two servers on one database behind a load balancer: no client notices a rolling restart, or a migration by the next
 * version.
 */
import { setTimeout as sleep } from "node:timers/promises";
import { Effect } from "effect";
import { Migrator, SqlClient } from "effect/sql";
import { afterAll, beforeAll, expect, inject, it } from "vitest";
import { startSlowModel, type SlowModel } from "../apps/server/test/TestModel.ts";
import { freePort } from "../apps/server/test/FreePort.ts";
import { makeServer, makeSite, type Server, type Site } from "../faults/Harness.ts";
import { clientOf } from "../packages/store-pg/test/PostgresUnderTest.ts";
import { startHaProxy, type HaProxy } from "./programs/HaProxy.ts";

const schema = `rolling_${process.pid}`;
let site: Site;
let model: SlowModel;
let servers: ReadonlyArray<Server & { readonly management: number }> = [];
let proxy: HaProxy;

beforeAll(async () => {
  site = await makeSite();
  model = await startSlowModel(() => sleep(5000));
  const settings = {
    ...model.settings,
    PARLEY_STORE: "postgres",
    DATABASE_URL: inject("postgresUrl"),
    PARLEY_SCHEMA: schema,
    // The default. With a shorter delay, HAProxy on a busy machine learns too late that a server is stopping.
    PARLEY_DRAIN_DELAY: "5 seconds",
  };
  servers = await Promise.all(
    [0, 1].map(async () => {
      const management = await freePort();
      const more = { ...settings, PARLEY_MANAGEMENT_PORT: String(management) };
      return { ...(await makeServer(site, more)), management };
    }),
  );
  for (const { start } of servers) await start();
  proxy = await startHaProxy(
    servers.map(({ baseUrl, management }) => ({ port: Number(new URL(baseUrl).port), management })),
  );
});
afterAll(async () => {
  await proxy?.close();
  for (const server of servers) if (server.isRunning()) await server.kill();
  model?.close();
  await site?.remove();
});

/** Restarts one server after the other, each time waiting until the proxy finds all of them ready. */
const restart = async () => {
  for (const server of servers) {
    expect(await server.stop(), server.log()).toBe(0);
    await server.start();
    while (!(await proxy.isComplete())) await sleep(100);
  }
};

/** Sends a request; returns "ok", or why it failed. */
const send = (path: string, body?: object): Promise<string> =>
  fetch(`${proxy.origin}${path}`, {
    headers: { "x-api-key": site.keys[0], "content-type": "application/json" },
    ...(body && { method: "POST", body: JSON.stringify(body) }),
  }).then(
    async (response) => {
      const text = await response.text();
      return response.ok ? "ok" : `${response.status} ${text}`;
    },
    (error: Error) => `${error.message}: ${String(error.cause)}`,
  );

/** Sends a hundred requests a second, half of them writes, while `work` runs; none may fail. */
const underLoad = async (work: () => Promise<void>) => {
  const outcomes: Array<Promise<string>> = [];
  const begun = performance.now();
  const load = setInterval(() => {
    while (outcomes.length < (performance.now() - begun) / 10) {
      const reads = outcomes.length % 2 === 0;
      outcomes.push(reads ? send("/api/chats") : send("/api/chats", { name: "rolling" }));
    }
  }, 10);
  await work().finally(() => clearInterval(load));
  expect(outcomes.length).toBeGreaterThan(100);
  expect((await Promise.all(outcomes)).filter((outcome) => outcome !== "ok")).toEqual([]);
};

it(
  "no request fails in two rolling restarts at a hundred requests a second",
  () =>
    underLoad(async () => {
      await restart();
      await restart();
    }),
  120_000,
);

it("a hundred asks that take five seconds each are answered during a rolling restart", async () => {
  const rollingRestart = restart();
  const outcomes: Array<Promise<string>> = [];
  for (let n = 0; n < 100; n++) {
    outcomes.push(send("/ask/", { query: `Question ${n}?` }));
    await sleep(60);
  }
  await rollingRestart;
  expect((await Promise.all(outcomes)).filter((outcome) => outcome !== "ok")).toEqual([]);
});

/** Migrates as a later version would; migrations only ever add. */
const migrate = Effect.gen(function* () {
  const sql = yield* clientOf(schema);
  const [newest] = yield* sql.unsafe<{ readonly id: number }>(
    "select max(migration_id) as id from parley_schema",
  );
  const later = Effect.forEach(
    [
      "create table later (chatbot_id bigint not null references chatbot)",
      "alter table chatbot add column later text",
      "alter table api_key add column later text not null default ''",
      "alter table chat add column later text",
      "alter table entry add column later text not null default ''",
      "create index later_name on chat (chatbot_id, later)",
    ],
    (statement) => SqlClient.SqlClient.use((client) => client.unsafe(statement)),
  );
  const loader = Migrator.fromRecord({ [`${newest!.id + 1}_later`]: later });
  const applied = yield* Migrator.make({})({ loader, table: "parley_schema" }).pipe(
    Effect.provideService(SqlClient.SqlClient, sql),
  );
  expect(applied).toHaveLength(1);
}).pipe(Effect.scoped);

it("the servers keep serving during and after a migration by a later version", async () => {
  await underLoad(async () => {
    await sleep(1000);
    await Effect.runPromise(migrate);
    await sleep(1000);
  });
  expect(await send("/ask/", { query: "Still there?" })).toBe("ok");
});
