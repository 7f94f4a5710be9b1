import { assert, it } from "@effect/vitest";
import { defaultChatQuery } from "@parley/core";
import { ChatStore } from "@parley/core/ports";
import { registerChatbot } from "@parley/core/testing";
import { layerPostgres } from "@parley/store-pg";
import { Effect } from "effect";
import { makePools } from "../../src/connections/PgPools.ts";
import { freshDatabase } from "../PostgresUnderTest.ts";

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
    yield* Effect.gen(function* () {
      const store = yield* ChatStore;
      const chatbots = yield* Effect.replicateEffect(registerChatbot, 8);
      const chat = { name: "n", userRef: "u", helloMessage: null };
      const byName = [{ field: "name", descending: false }] as const;
      const load = Effect.forEach(
        Array.from({ length: 600 }, (_, n) => n),
        (n) => {
          const chatbot = chatbots[n % 8]!;
          const key = n % 2 === 0 ? null : { key: `key ${n}`, fingerprint: "f" };
          return Effect.all([
            store.createChat(chatbot, chat, key),
            store.listChats(chatbot, defaultChatQuery),
            store.listChats(chatbot, { ...defaultChatQuery, orderBy: byName }),
          ]);
        },
        { concurrency: 200 },
      );
      let most = 0;
      const count = sql
        .unsafe<{ readonly count: number }>(
          // Excludes the probe of a slow database, which briefly opens a connection of its own.
          "select count(*)::int4 as count from pg_stat_activity where datname = $1 and application_name = 'parley' and query not in ('', 'select 1')",
          [name],
        )
        .pipe(
          Effect.map(([row]) => (most = Math.max(most, row!.count))),
          Effect.delay("10 millis"),
          Effect.forever,
        );
      yield* Effect.raceFirst(load, count);
      assert.isAtMost(most, 12);
      assert.isAbove(most, 6);
    }).pipe(Effect.provide(layerPostgres({ url })));
  }).pipe(Effect.scoped),
);
