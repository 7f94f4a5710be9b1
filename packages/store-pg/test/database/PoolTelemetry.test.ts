import { assert, it } from "@effect/vitest";
import { layerPostgres } from "@parley/store-pg";
import { Effect, Fiber, Logger, Metric, Redacted } from "effect";
import { inject } from "vitest";
import { makePools } from "../../src/database/PgPools.ts";
import { clientOf, freshDatabase } from "../PostgresUnderTest.ts";

it.live("the loss of the database and its return are one line each, also while nobody asks", () =>
  Effect.gen(function* () {
    const logged: Array<string> = [];
    const logger = Logger.make((entry) => void logged.push(Logger.formatJson.log(entry)));
    const { name, url } = yield* freshDatabase();
    const superuser = yield* clientOf("public", 1, Redacted.make(inject("roleUrls").superuser));
    yield* Effect.gen(function* () {
      yield* superuser.unsafe(`drop database ${name} with (force)`);
      yield* Effect.repeat(Effect.sleep("20 millis"), { until: () => logged.length > 0 });
      assert.include(logged[0]!, "The database was lost");
      assert.include(logged[0]!, "does not exist");
      yield* superuser.unsafe(`create database ${name} template template0`);
      yield* Effect.repeat(Effect.sleep("20 millis"), { until: () => logged.length > 1 });
      assert.include(logged[1]!, "The database can be used again");
      assert.lengthOf(logged, 2);
    }).pipe(Effect.provide(layerPostgres({ url })), Effect.provide(Logger.layer([logger])));
  }).pipe(Effect.scoped),
);

it.live(
  "the connections in use and the statements that wait for one are metrics of each pool",
  () =>
    Effect.gen(function* () {
      const { url } = yield* freshDatabase();
      const pools = yield* makePools({ url, schema: "parley", maxConnections: 6 });
      const value = (id: string) =>
        Effect.map(Metric.snapshot, (metrics) =>
          metrics.flatMap((one) =>
            one.id === id && one.type === "Gauge"
              ? [[one.attributes?.["db.client.connection.pool.name"], Number(one.state.value)]]
              : [],
          ),
        );
      const sleep = pools.bulk.query("operator", "select pg_sleep(0.5)");
      const sleeping = yield* Effect.forkChild(
        Effect.all([sleep, sleep, sleep], { concurrency: 3 }),
      );
      yield* Effect.sleep("300 millis");
      const idle = (count: number) => [
        ["reads", 0],
        ["writes", 0],
        ["bulk", count],
      ];
      assert.deepStrictEqual(yield* value("db.client.connection.used"), idle(2));
      assert.deepStrictEqual(yield* value("db.client.connection.pending_requests"), idle(1));
      yield* Fiber.join(sleeping);
      assert.deepStrictEqual(yield* value("db.client.connection.used"), idle(0));
      assert.deepStrictEqual(yield* value("db.client.connection.pending_requests"), idle(0));
    }).pipe(Effect.scoped, Effect.provideService(Metric.MetricRegistry, new Map())),
);
