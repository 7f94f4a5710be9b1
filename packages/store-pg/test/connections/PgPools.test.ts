import { assert, it } from "@effect/vitest";
import { defaultChatQuery } from "@parley/core";
import { ChatStore } from "@parley/core/ports";
import { registerChatbot } from "@parley/core/testing";
import { layerPostgres } from "@parley/store-pg";
import { Effect, Fiber } from "effect";
import { makePools } from "../../src/connections/PgPools.ts";
import { bare, keyOf } from "../fixtures.ts";
import { clientOf, freshDatabase } from "../PostgresUnderTest.ts";

it.live("a database's settings do not affect statements", () =>
  Effect.gen(function* () {
    const { name, sql, url } = yield* freshDatabase();
    yield* sql.unsafe(`alter database ${name} set jit = on`);
    yield* sql.unsafe(`alter database ${name} set default_transaction_isolation = serializable`);
    for (const limit of ["statement", "lock", "idle_in_transaction_session"]) {
      yield* sql.unsafe(`alter database ${name} set ${limit}_timeout = '7s'`);
    }
    const pools = yield* makePools({ url, schema: "parley", maxConnections: 6 });
    const sessions = {
      reads: [pools.reads, "4s", "0", "5s"],
      writes: [pools.writes, "4s", "1500ms", "5s"],
      bulk: [pools.bulk, "10s", "0", "5s"],
      erasureSession: [yield* pools.erasureSession, "0", "1s", "5s"],
      exportSession: [yield* pools.exportSession, "0", "0", "0"],
    } as const;
    for (const [name, [session, ...timeouts]] of Object.entries(sessions)) {
      const rows = yield* session.query(
        "operator",
        `select current_setting('jit') as jit, current_setting('transaction_isolation') as isolation,
            array[current_setting('statement_timeout'), current_setting('lock_timeout'),
              current_setting('idle_in_transaction_session_timeout')] as timeouts`,
      );
      assert.deepStrictEqual(rows, [{ jit: "off", isolation: "read committed", timeouts }], name);
    }
  }).pipe(Effect.scoped),
);

it.live("a store has at most 12 connections", () =>
  Effect.gen(function* () {
    const { name, sql, url } = yield* freshDatabase();
    const other = yield* clientOf("parley", 1, url);
    yield* Effect.gen(function* () {
      const store = yield* ChatStore;
      const chatbots = yield* Effect.replicateEffect(registerChatbot, 8);
      const byName = [{ field: "name", descending: false }] as const;
      const load = Effect.forEach(
        Array(200).keys(),
        (n) => {
          const chatbot = chatbots[n % 8]!;
          const requests: ReadonlyArray<Effect.Effect<unknown, unknown>> = [
            store.createChat(chatbot, bare, n % 2 === 0 ? null : keyOf(`key ${n}`)),
            store.listChats(chatbot, defaultChatQuery),
            store.listChats(chatbot, { ...defaultChatQuery, orderBy: byName }),
          ];
          return Effect.forever(Effect.ignore(requests[n % 3]!));
        },
        { concurrency: "unbounded", discard: true },
      );
      // Every statement waits for the lock, so each connection is counted once it is in use, and no other: PostgreSQL
      // still lists a connection that the store has closed.
      const count = other
        .unsafe<{ readonly count: number }>(
          "select count(*)::int4 as count from pg_stat_activity where datname = $1 and application_name = 'parley' and wait_event_type = 'Lock'",
          [name],
        )
        .pipe(Effect.map(([row]) => row!.count));
      const [most, fiber] = yield* sql.withTransaction(
        Effect.gen(function* () {
          yield* sql.unsafe("lock table chat");
          const fiber = yield* Effect.forkChild(load);
          yield* Effect.repeat(count, { until: (connections) => connections >= 12 });
          // A thirteenth would appear while hundreds of requests wait.
          return [Math.max(...(yield* Effect.replicateEffect(count, 100))), fiber] as const;
        }),
      );
      yield* Fiber.interrupt(fiber);
      assert.strictEqual(most, 12);
    }).pipe(Effect.provide(layerPostgres({ url })));
  }).pipe(Effect.scoped),
);
