import { setTimeout } from "node:timers/promises";
import * as PgConnection from "@effect/sql-pg/PgConnection";
import * as PgPool from "@effect/sql-pg/PgPool";
import { assert, it } from "@effect/vitest";
import { layerPostgres } from "@parley/store-pg";
import { Effect, Fiber, Logger, Metric } from "effect";
import { TestClock } from "effect/testing";
import { vi } from "vitest";
import { watchAvailability } from "../../src/connections/Availability.ts";
import { makeTenantPool, type Tenant, type TenantPool } from "../../src/connections/Checkout.ts";
import { deadlines, noResponseError } from "../../src/connections/Deadlines.ts";
import { toStoreErrors } from "../../src/connections/PgErrors.ts";
import { makeRoundRobin } from "../../src/connections/RoundRobin.ts";
import { makeTlsChoice } from "../../src/connections/TlsFallback.ts";
import { freshDatabase, optionsOf, superuserIn } from "../PostgresUnderTest.ts";

/** Waits until the metrics show this many connections in use and this many statements waiting for a connection. */
const showing = (pool: string, used: number, pending: number) =>
  Effect.map(Metric.snapshot, (metrics) =>
    Object.entries({ used, pending_requests: pending }).every(([name, value]) =>
      metrics.some(
        ({ attributes, id, state }) =>
          id === `db.client.connection.${name}` &&
          attributes?.["db.client.connection.pool.name"] === pool &&
          "value" in state &&
          Number(state.value) === value,
      ),
    ),
  ).pipe(Effect.delay("5 millis"), Effect.repeat({ until: (shows) => shows }));

const alwaysPlain = makeTlsChoice(false, null);
const onePool = PgPool.make({ ...optionsOf("public"), maxConnections: 1 });
const newState = () => ({ isUnavailable: false, replaceBefore: -Infinity });

for (const slots of [1, 2]) {
  it.live(
    `work that gets no connection by its deadline fails, and the metrics count it while it waits (slots: ${slots})`,
    () =>
      Effect.gen(function* () {
        const pool = yield* onePool;
        const roundRobin = makeRoundRobin<Tenant>(slots);
        const query = (name: string, deadline: number, text: string) => {
          const options = { name, size: 1, deadline, silentAfter: 4_500, cancels: true };
          return makeTenantPool(pool, newState(), alwaysPlain, {
            ...options,
            slots: roundRobin,
          }).pipe(
            Effect.flatMap(({ use }) => use(1, (connection) => connection.query(text))),
            toStoreErrors,
          );
        };
        const sleep = query("long", 10_000, "select pg_sleep(5)");
        yield* Effect.forkScoped(sleep, { startImmediately: true });
        yield* showing("long", 1, 0);
        const waitingQuery = yield* Effect.forkChild(query("short", 300, "select 1"));
        yield* showing("short", 0, 1);
        assert.strictEqual((yield* Effect.flip(Fiber.join(waitingQuery)))._tag, "Overloaded");
        yield* showing("short", 0, 0);
      }).pipe(Effect.scoped, Effect.provideService(Metric.MetricRegistry, new Map())),
  );
}

it.live("a slow statement on a live server fails alone, and other connections stay open", () =>
  Effect.gen(function* () {
    const state = newState();
    const options = { name: "bulk", size: 1, deadline: 300, silentAfter: Infinity, cancels: true };
    const { use } = yield* makeTenantPool(yield* onePool, state, alwaysPlain, options);
    const slow = yield* Effect.flip(use(1, ({ query }) => query("select pg_sleep(5)")));
    assert.strictEqual(slow._tag === "SqlError" && slow.reason._tag, "StatementTimeoutError");
    yield* use(1, ({ query }) => query("select 1"));
    assert.deepStrictEqual(state, newState());
  }).pipe(Effect.scoped, Effect.provideService(Metric.MetricRegistry, new Map())),
);

it.live("a connection that has reached its maximum age is replaced before its next statement", () =>
  Effect.gen(function* () {
    const options = { name: "reads", size: 1, deadline: 4_800, silentAfter: 4_500, cancels: false };
    const { use } = yield* makeTenantPool(yield* onePool, newState(), alwaysPlain, options);
    const backend = Effect.map(
      use(1, ({ query }) => query("select pg_backend_pid() as pid")),
      ({ rows }) => rows[0]!["pid"],
    );
    const now = performance.now.bind(performance);
    let elapsed = 0;
    const clock = vi.spyOn(performance, "now").mockImplementation(() => now() + elapsed);
    yield* Effect.addFinalizer(() => Effect.sync(() => clock.mockRestore()));
    const first = yield* backend;
    elapsed = deadlines.connectionAge / 2;
    assert.strictEqual(yield* backend, first);
    elapsed = deadlines.connectionAge;
    const second = yield* backend;
    assert.notStrictEqual(second, first);
    assert.strictEqual(yield* backend, second);
  }).pipe(Effect.scoped, Effect.provideService(Metric.MetricRegistry, new Map())),
);

it.effect("the database's loss and return are each logged once, even without requests", () =>
  Effect.gen(function* () {
    const logged: Array<string> = [];
    const logger = Logger.make((entry) => void logged.push(Logger.formatJson.log(entry)));
    const { name, url } = yield* freshDatabase();
    const superuser = yield* superuserIn("postgres");
    /** The time between two probes passes, and then a moment in which the probe runs. */
    const probe = Effect.andThen(
      TestClock.adjust("1 second"),
      Effect.promise(() => setTimeout(50)),
    );
    yield* Effect.gen(function* () {
      yield* superuser.unsafe(`drop database ${name} with (force)`);
      yield* Effect.repeat(probe, { until: () => logged.length > 0 });
      yield* Effect.repeat(probe, { times: 3 });
      assert.include(logged[0]!, "The database is unavailable");
      assert.match(logged[0]!, /does not exist|did not respond/);
      const metrics = yield* Metric.snapshot;
      const writable = metrics.find(({ id }) => id === "parley.database.writable");
      assert.deepInclude(writable?.state, { value: 0 });
      yield* superuser.unsafe(`create database ${name} template template0`);
      yield* Effect.repeat(probe, { until: () => logged.length > 1 });
      yield* Effect.repeat(probe, { times: 3 });
      assert.include(logged[1]!, "The database is available again");
      assert.lengthOf(logged, 2);
    }).pipe(Effect.provide(layerPostgres({ url })), Effect.provide(Logger.layer([logger])));
  }).pipe(Effect.scoped, Effect.provideService(Metric.MetricRegistry, new Map())),
);

for (const [limit, isUnavailable] of [
  ["connection limit 0", false],
  ["allow_connections false", true],
] as const) {
  it.effect(
    `a database that refuses new connections is ${isUnavailable ? "un" : ""}available with "${limit}"`,
    () =>
      Effect.gen(function* () {
        const { name, url } = yield* freshDatabase();
        const superuser = yield* superuserIn("postgres");
        yield* superuser.unsafe(`alter database ${name} with ${limit}`);
        const busy: TenantPool = { use: () => Effect.fail(noResponseError) };
        const state = { ...newState(), isUnavailable: !isUnavailable };
        yield* watchAvailability(busy, PgConnection.make({ url }), state, () => Effect.void);
        yield* Effect.promise(() =>
          vi.waitUntil(() => state.isUnavailable === isUnavailable, { timeout: 3_000 }),
        );
      }).pipe(Effect.scoped),
  );
}
