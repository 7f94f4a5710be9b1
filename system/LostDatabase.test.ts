/**
 * What a server's connections ran into does not outlast them, half a minute, and the deadline of a statement.
 */
import type { Socket } from "node:net";
import { ChatStore, newestChats, TurnStore } from "@parley/core";
import { registerChatbot } from "@parley/core/testing";
import { layerPostgres } from "@parley/store-pg";
import { Context, Effect, Exit, Fiber, Layer, Redacted, Scope } from "effect";
import { inject, test } from "vitest";
import { startRelay } from "../apps/server/test/Relay.ts";
import { makeClient } from "../faults/Client.ts";
import { makeDatabase } from "../faults/Database.ts";
import { startServer } from "../faults/Server.ts";
import { makeSite } from "../faults/Site.ts";
import {
  bound,
  freshSchema,
  layerStore,
  optionsOf,
} from "../packages/store-pg/test/PostgresUnderTest.ts";

/** The time after which a connection is replaced, one statement's deadline, and some. */
const most = 75_000;

/** A way to a database that can be made silent: nothing arrives any more, and nothing is closed. */
const startWay = async (url: string) => {
  const sockets = new Set<Socket>();
  const relay = await startRelay(url, (near, far) => {
    near.pipe(far);
    far.pipe(near);
    sockets.add(near).add(far);
  });
  const silence = () => {
    for (const socket of sockets) socket.unpipe().pause();
  };
  return { ...relay, silence };
};

/** A server whose way to its database can be made silent. */
const start = async () => {
  const site = await makeSite();
  const database = await makeDatabase(inject("postgresUrl"));
  const way = await startWay(database.url);
  const server = await startServer(site, { ...database.environment, DATABASE_URL: way.url });
  const client = makeClient(site.key);
  const status = async (answer: ReturnType<typeof client.get>) => (await answer)?.status;
  return {
    database,
    create: () => status(client.post(`${server.baseUrl}/chats`, {})),
    list: () => status(client.get(`${server.baseUrl}/chats`)),
    silence: way.silence,
    stop: async () => {
      client.close();
      await server.kill();
      way.close();
      await database.remove();
      await site.remove();
    },
  };
};

test.concurrent(
  "a server leaves connections on which nothing arrives any more",
  { timeout: 2 * most },
  async ({ expect }) => {
    const { create, list, silence, stop } = await start();
    try {
      expect([await create(), await list()]).toEqual([201, 200]);
      silence();
      const waited = list();
      await expect.poll(list, { timeout: most, interval: 500 }).toBe(200);
      await expect.poll(create, { timeout: most, interval: 500 }).toBe(201);
      expect(await waited).toBe(500);
    } finally {
      await stop();
    }
  },
);

test.concurrent(
  "a server creates chats again when its database can be written again",
  { timeout: 2 * most },
  async ({ expect }) => {
    const { create, database, list, stop } = await start();
    const [row] = await database.rows<{ readonly name: string }>(
      "select current_database()::text as name",
    );
    const readOnly = async (value: string) => {
      await database.rows(
        `alter database ${row!.name} set default_transaction_read_only = ${value}`,
      );
      await database.rows(
        "select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database() and application_name = 'parley'",
      );
    };
    try {
      expect(await create()).toBe(201);
      await readOnly("on");
      await expect.poll(create, { timeout: most, interval: 500 }).toBe(500);
      expect(await list()).toBe(200);
      await database.rows(`alter database ${row!.name} reset default_transaction_read_only`);
      await expect.poll(create, { timeout: most, interval: 500 }).toBe(201);
    } finally {
      await stop();
    }
  },
);

for (const [what, more] of [
  ["a store", () => ({})],
  ["a store that row security binds", bound],
] as const) {
  test.concurrent(
    `${what} leaves connections on which nothing arrives any more, whatever it sent on them, and can be closed`,
    { timeout: 2 * most },
    async ({ expect }) => {
      const options = { ...optionsOf(freshSchema()), ...more(), maxConnections: 7 };
      const way = await startWay(Redacted.value(options.url));
      const run = Effect.gen(function* () {
        yield* Effect.provide(Effect.void, layerStore(options));
        const scope = yield* Scope.make();
        const stores = yield* Layer.buildWithScope(
          layerPostgres({ ...options, url: Redacted.make(way.url) }),
          scope,
        );
        const chatbot = yield* Effect.provideContext(registerChatbot, stores);
        const [chats, turns] = [Context.get(stores, ChatStore), Context.get(stores, TurnStore)];
        let keys = 0;
        const keyOf = () => ({ key: `key ${++keys}`, fingerprint: "f" });
        const chat = { name: "n", userRef: null, helloMessage: null };
        const byName = [{ field: "name", descending: false }] as const;
        const whatever: ReadonlyArray<() => Effect.Effect<unknown, unknown>> = [
          () => chats.createChat(chatbot, chat, null),
          () => chats.createChat(chatbot, chat, keyOf()),
          () => turns.take(chatbot, null, keyOf()),
          () => chats.listChats(chatbot, newestChats),
          () => chats.listChats(chatbot, { ...newestChats, orderBy: byName }),
        ];
        const all = () =>
          Effect.all(
            whatever.map((one) => Effect.exit(one())),
            { concurrency: "unbounded" },
          );
        const succeeded = (exits: ReadonlyArray<Exit.Exit<unknown, unknown>>) =>
          exits.map(Exit.isSuccess);
        expect(succeeded(yield* all())).not.toContain(false);
        way.silence();
        const began = Date.now();
        const first = yield* Effect.forkChild(
          Effect.forEach([1, 2, 3], all, { concurrency: "unbounded" }),
        );
        // One that only listens may have its answer before.
        yield* Effect.repeat(Effect.delay(all(), "500 millis"), {
          until: (exits) => !succeeded(exits).includes(false) || Date.now() - began > most,
        });
        yield* Fiber.join(first);
        expect(Date.now() - began).toBeLessThan(most);
        // What is under way is waited for until its deadline; now nothing is.
        way.silence();
        const closing = Date.now();
        yield* Scope.close(scope, Exit.void);
        expect(Date.now() - closing).toBeLessThan(5_000);
      });
      try {
        await Effect.runPromise(run);
      } finally {
        way.close();
      }
    },
  );
}
