/**
 * That rows of erased chats go as soon as nobody can read them, and what others in the database can do about it.
 */
import { assert, describe, it } from "@effect/vitest";
import type * as PgClient from "@effect/sql-pg/PgClient";
import type { CompactionPace } from "@parley/core";
import { Deferred, Effect, Exit, Fiber, Redacted, Schedule } from "effect";
import { Reactivity } from "effect/reactivity";
import { connect, createServer, type AddressInfo, type Socket } from "node:net";
import { makeMigrator } from "../src/Clients.ts";
import { compactErased } from "../src/Compaction.ts";
import { plainSession } from "../src/Session.ts";
import { vacuum, whileUnpinned } from "../src/Vacuum.ts";
import { doing, fewErased, lasting } from "./erased.ts";
import { filledChatbot } from "./fill.ts";
import { freshDatabase, warningsOf } from "./PostgresUnderTest.ts";

describe("rows of erased chats", () => {
  const others = "a transaction that began before may still read it";

  it.live("go when a transaction has ended that wrote elsewhere", () =>
    Effect.gen(function* () {
      const { another, clients, erase, left } = yield* fewErased;
      const writer = yield* another;
      yield* writer.withTransaction(
        Effect.gen(function* () {
          yield* writer.unsafe("insert into public.elsewhere values (1)");
          yield* erase;
          const compact = compactErased(clients, "thorough", { patience: 1 });
          const [warning] = yield* warningsOf(Effect.map(compact, assert.isFalse));
          assert.include(warning, others);
          assert.strictEqual(yield* left, 20);
        }),
      );
      const compact = compactErased(clients, "thorough");
      assert.deepStrictEqual(yield* warningsOf(Effect.map(compact, assert.isTrue)), []);
      assert.strictEqual(yield* left, 0);
    }).pipe(Effect.scoped),
  );

  it.live("go when one has ended that began to read before such a writer ended", () =>
    Effect.gen(function* () {
      const { another, clients, erase, left } = yield* fewErased;
      const writer = yield* another;
      const reader = yield* another;
      const ended = yield* Deferred.make<void>();
      const writing = yield* Effect.forkChild(
        writer.withTransaction(
          Effect.andThen(
            writer.unsafe("insert into public.elsewhere values (1)"),
            Deferred.await(ended),
          ),
        ),
      );
      yield* Effect.sleep("100 millis");
      yield* erase;
      const compacting = yield* Effect.forkChild(
        Effect.exit(compactErased(clients, "thorough", { patience: 10 })),
      );
      yield* Effect.sleep("200 millis");
      yield* reader.withTransaction(
        Effect.gen(function* () {
          yield* reader.unsafe("set transaction isolation level repeatable read");
          yield* reader.unsafe("select 1");
          yield* Deferred.succeed(ended, undefined);
          yield* Fiber.join(writing);
          yield* Effect.sleep("500 millis");
          assert.isUndefined(compacting.pollUnsafe());
        }),
      );
      assert.deepStrictEqual(yield* Fiber.join(compacting), Exit.succeed(true));
      assert.strictEqual(yield* left, 0);
    }).pipe(Effect.scoped),
  );

  it.live("go when a writer in another database has ended, beside which others read here", () =>
    Effect.gen(function* () {
      const { another, clients, erase, left } = yield* fewErased;
      const elsewhere = yield* freshDatabase();
      const reader = yield* another;
      const reading = yield* lasting(
        reader,
        Effect.andThen(
          reader.unsafe("set transaction isolation level repeatable read"),
          reader.unsafe("select 1"),
        ),
      );
      yield* elsewhere.sql.withTransaction(
        Effect.gen(function* () {
          yield* elsewhere.sql.unsafe("select pg_current_xact_id()::text");
          yield* erase;
          const compact = compactErased(
            doing(clients, "vacuum (index", reading.begin),
            "thorough",
            {
              patience: 1,
            },
          );
          const [warning] = yield* warningsOf(Effect.map(compact, assert.isFalse));
          assert.include(warning, others);
          assert.strictEqual(yield* left, 20);
        }),
      );
      yield* reading.end;
      const compact = compactErased(clients, "thorough");
      assert.deepStrictEqual(yield* warningsOf(Effect.map(compact, assert.isTrue)), []);
      assert.strictEqual(yield* left, 0);
    }).pipe(Effect.scoped),
  );

  it.live("go when nobody stands on their page any more", () =>
    Effect.gen(function* () {
      const { another, clients, erase, left } = yield* fewErased;
      const reader = yield* another;
      yield* erase;
      // The last that is there is on their page.
      const standing = yield* lasting(
        reader,
        Effect.gen(function* () {
          yield* reader.unsafe("set local enable_indexscan = off");
          yield* reader.unsafe("set local enable_indexonlyscan = off");
          yield* reader.unsafe("set local enable_bitmapscan = off");
          yield* reader.unsafe(
            "declare c cursor for select position from chat where position > 998",
          );
          yield* reader.unsafe("fetch 1 from c");
        }),
      );
      const compacting = yield* Effect.forkChild(
        compactErased(doing(clients, "vacuum (index", standing.begin), "thorough"),
      );
      yield* Effect.sleep("3 seconds");
      assert.isUndefined(compacting.pollUnsafe());
      assert.strictEqual(yield* left, 20);
      yield* standing.end;
      assert.isTrue(yield* Fiber.join(compacting));
      assert.strictEqual(yield* left, 0);
    }).pipe(Effect.scoped),
  );

  it.live("are left where somebody stands on a page of an index, and nobody waits for ever", () =>
    Effect.gen(function* () {
      const { another, clients, erase, sql } = yield* fewErased;
      // So that an index alone tells what is there.
      yield* sql.unsafe("vacuum analyze chat");
      yield* erase;
      const reader = yield* another;
      let isDone = true;
      const warnings = (pace: CompactionPace) =>
        reader.withTransaction(
          Effect.gen(function* () {
            yield* standOnIndex(reader);
            const compact = compactErased(clients, pace, { patience: 1 });
            return yield* warningsOf(Effect.map(compact, (done) => (isDone = done)));
          }),
        );
      for (const pace of ["quick", "thorough"] as const) {
        // Where something was written in another database meanwhile, the cursor keeps the rows, so that nothing goes.
        const warned = yield* Effect.repeat(warnings(pace), {
          until: (found) => found.some((warning) => warning.includes("others hold its tables")),
          schedule: Schedule.spaced("50 millis"),
        });
        assert.deepStrictEqual([isDone, warned.length], [false, 1]);
        yield* Effect.repeat(
          sql.unsafe("select from pg_stat_progress_vacuum where datname = current_database()"),
          { until: (vacuums) => vacuums.length === 0 },
        );
      }
      assert.isTrue(yield* compactErased(clients, "thorough"));
    }).pipe(Effect.timeout("25 seconds"), Effect.scoped),
  );

  for (const { by, name } of [
    { name: "whoever it is that waits", by: "another" },
    { name: "also if the process is killed", by: "killed" },
  ]) {
    it.live(`are not waited for beside such a one, ${name}`, () =>
      Effect.gen(function* () {
        const { another, clients, erase, sql, url } = yield* fewErased;
        yield* sql.unsafe("vacuum analyze chat");
        yield* erase;
        const reader = yield* another;
        const relay = yield* relayTo(url);
        const watcher = yield* clients.migrator({ lockTimeout: "0" });
        const vacuuming = (more: string) =>
          Effect.map(
            sql.unsafe(
              `select from pg_stat_activity where datname = current_database() and query like 'vacuum (%' ${more}`,
            ),
            (rows) => rows.length,
          );
        const waiting = "and state = 'active' and wait_event = 'BufferPin'";
        const standing = reader.withTransaction(
          Effect.gen(function* () {
            yield* standOnIndex(reader);
            const session = yield* makeMigrator({ url: relay.url, schema: "parley" });
            const run = vacuum(plainSession(session, { isPatient: true }), ["chat"]);
            const running = yield* Effect.forkChild(Effect.exit(run));
            // As long as something is written in another database, there is nothing that can go.
            while ((yield* vacuuming(waiting)) === 0) {
              if (running.pollUnsafe() !== undefined)
                return yield* Effect.fail("nothing went" as const);
              yield* Effect.sleep("20 millis");
            }
            if (by === "another") {
              const ended = yield* Effect.flip(whileUnpinned(watcher, 1, Effect.never));
              assert.strictEqual(ended._tag, "Pinned");
              yield* Fiber.interrupt(running);
            } else {
              relay.cut();
            }
            yield* Effect.repeat(vacuuming("and state = 'active'"), {
              until: (count) => count === 0,
              schedule: Schedule.spaced("100 millis"),
            });
          }).pipe(Effect.provide(Reactivity.layer), Effect.scoped),
        );
        yield* Effect.retry(standing, { while: (error) => error === "nothing went" });
      }).pipe(Effect.timeout("25 seconds"), Effect.scoped),
    );
  }

  it.live("go when an index of another table is made", () =>
    Effect.gen(function* () {
      const { another, clients, erase, left, sql } = yield* fewErased;
      yield* sql.unsafe(`create function public.slow(int) returns int immutable
        language plpgsql as 'begin perform pg_sleep(2); return $1; end'`);
      yield* sql.unsafe("insert into public.elsewhere values (1)");
      const other = yield* another;
      const making = yield* Effect.forkChild(
        other.unsafe("create index on public.elsewhere (public.slow(n))"),
      );
      yield* Effect.sleep("300 millis");
      yield* erase;
      assert.isTrue(yield* compactErased(clients, "thorough", { patience: 20 }));
      assert.strictEqual(yield* left, 0);
      yield* Fiber.join(making);
    }).pipe(Effect.scoped),
  );

  it.live("go beside a VACUUM of another table that has helpers", () =>
    Effect.gen(function* () {
      const { another, clients, erase, left, sql } = yield* fewErased;
      yield* sql.unsafe(
        "create table public.wide as select n a, n b from generate_series(1, 50000) n",
      );
      for (const column of ["a", "b"]) yield* sql.unsafe(`create index on public.wide (${column})`);
      yield* sql.unsafe("delete from public.wide where a % 2 = 0");
      const other = yield* another;
      yield* other.unsafe("set min_parallel_index_scan_size = 0");
      yield* other.unsafe("set vacuum_cost_delay = 100");
      yield* other.unsafe("set vacuum_cost_limit = 25");
      const vacuuming = yield* Effect.forkChild(other.unsafe("vacuum (parallel 2) public.wide"));
      yield* sql
        .unsafe(
          `select from pg_stat_activity where leader_pid in (
            select pid from pg_stat_progress_vacuum where datname = current_database()
          )`,
        )
        .pipe(
          Effect.repeat({
            until: (helpers) => helpers.length > 0,
            schedule: Schedule.spaced("20 millis"),
          }),
        );
      yield* erase;
      yield* sql.unsafe("select pg_current_xact_id()::text");
      assert.isTrue(yield* compactErased(clients, "thorough", { patience: 2 }));
      assert.strictEqual(yield* left, 0);
      assert.isUndefined(vacuuming.pollUnsafe());
      yield* Fiber.interrupt(vacuuming);
    }).pipe(Effect.scoped),
  );

  it.live("go when an index of another of the tables is rebuilt", () =>
    Effect.gen(function* () {
      const { another, clients, erase, left, sql } = yield* fewErased;
      yield* sql.unsafe(`create function public.slow(text) returns text immutable language plpgsql
        as 'begin perform pg_sleep(current_setting(''slow.seconds'', true)::float8); return $1; end'`);
      yield* sql.unsafe(
        "insert into request (chatbot_id, key, fingerprint, made_at) values ($1, 'k', 'f', now())",
        [filledChatbot],
      );
      yield* sql.unsafe("create index request_slow on request (public.slow(key))");
      const other = yield* another;
      yield* other.unsafe("set slow.seconds = 2");
      const rebuilding = yield* Effect.forkChild(
        other.unsafe("reindex index concurrently request_slow"),
      );
      yield* Effect.sleep("300 millis");
      yield* erase;
      assert.isTrue(yield* compactErased(clients, "thorough"));
      assert.strictEqual(yield* left, 0);
      yield* Fiber.join(rebuilding);
    }).pipe(Effect.scoped),
  );

  it.live(
    "are left where somebody holds the table, and nobody waits for ever",
    () =>
      Effect.gen(function* () {
        const { another, clients, erase, left } = yield* fewErased;
        const holder = yield* another;
        yield* erase;
        for (const pace of ["quick", "thorough"] as const) {
          const compact = compactErased(clients, pace, { patience: 1 });
          yield* holder.withTransaction(
            Effect.gen(function* () {
              yield* holder.unsafe("lock table chat in share update exclusive mode");
              const [warning] = yield* warningsOf(Effect.map(compact, assert.isFalse));
              assert.include(warning, "others hold its tables");
            }),
          );
        }
        assert.strictEqual(yield* left, 20);
        // Whoever looks at the database in this moment may see what a writer in another left.
        const rest = yield* Effect.andThen(compactErased(clients, "quick"), left).pipe(
          Effect.repeat({ until: (count) => count === 0, times: 9 }),
        );
        assert.strictEqual(rest, 0);
      }).pipe(Effect.timeout("20 seconds"), Effect.scoped),
    30_000,
  );
});

/** In a transaction, on a page of the index of names. */
const standOnIndex = (reader: PgClient.PgClient) =>
  Effect.forEach(
    [
      "set local enable_seqscan = off",
      "set local enable_bitmapscan = off",
      `declare c cursor for select name from chat where chatbot_id = ${filledChatbot} order by name`,
      "fetch 1 from c",
    ],
    (statement) => reader.unsafe(statement),
    { discard: true },
  );

/** A way to the database that can be cut, as the operating system does for a process that is killed. */
const relayTo = Effect.fnUntraced(function* (url: Redacted.Redacted) {
  const { hostname, port } = new URL(Redacted.value(url));
  const sockets: Array<Socket> = [];
  const server = createServer((from) => {
    const to = connect(Number(port), hostname);
    for (const socket of [from, to]) sockets.push(socket.on("error", () => {}));
    from.pipe(to).pipe(from);
  });
  yield* Effect.acquireRelease(
    Effect.promise(() => new Promise<void>((done) => server.listen(0, "127.0.0.1", done))),
    () => Effect.sync(() => server.close()),
  );
  const changed = new URL(Redacted.value(url));
  changed.hostname = "127.0.0.1";
  changed.port = String((server.address() as AddressInfo).port);
  const cut = () => {
    for (const socket of sockets) socket.destroy();
  };
  return { url: Redacted.make(changed.href), cut };
});
