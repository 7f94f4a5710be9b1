/**
 * That nothing of erased texts is left in indexes, and what others in the database can do about it.
 */
import { assert, describe, it } from "@effect/vitest";
import { Deferred, Effect, Fiber } from "effect";
import { Reactivity } from "effect/reactivity";
import { inject } from "vitest";
import { makeClients, type Clients } from "../src/Clients.ts";
import { compactErased } from "../src/Compaction.ts";
import { amongOthers, doing, fewErased, lasting } from "./erased.ts";
import { filledChatbot } from "./fill.ts";
import { warningsOf } from "./PostgresUnderTest.ts";

describe("an erasure", () => {
  it.live(
    "of chats among many others leaves nothing of them in the indexes of texts",
    () =>
      Effect.gen(function* () {
        const { clients, erase, held, holdsAll, inspector, sql } = yield* amongOthers(false);
        // However slow the machine is.
        const compact = compactErased(clients, "quick", { longest: 10_000 });
        yield* erase;
        yield* sql.unsafe("vacuum (index_cleanup on) chat, request");
        yield* holdsAll;
        // Who reads it all keeps the indexes as they are, and is not waited for.
        yield* inspector.withTransaction(
          Effect.andThen(
            inspector.unsafe("select count(*) from chat, lateral (select count(*) from request) r"),
            Effect.timeout(compact, "20 seconds"),
          ),
        );
        yield* holdsAll;
        // An autovacuum is in the way for a while.
        const left = yield* Effect.andThen(compact, held).pipe(
          Effect.repeat({ until: (counts) => counts.every((count) => count === 0), times: 9 }),
        );
        assert.deepStrictEqual(left, [0, 0, 0, 0]);
      }).pipe(Effect.scoped),
    60_000,
  );

  it.live(
    "of chats in large indexes rebuilds them while they are used",
    () =>
      Effect.gen(function* () {
        const { another, clients, erase, held, holdsAll, inspector, sql, store } =
          yield* amongOthers(true);
        /** Indexes that are not whole. */
        const unfinished = Effect.map(
          sql.unsafe<{ readonly name: string }>(
            "select indexrelid::regclass::text as name from pg_index where not indisvalid order by 1",
          ),
          (rows) => rows.map(({ name }) => name),
        );
        /** A transaction that goes on to see what there was. */
        const seeing = (client: typeof sql, table: string) =>
          Effect.andThen(
            client.unsafe("set transaction isolation level repeatable read"),
            client.unsafe(`select from ${table} limit 1`),
          );
        yield* erase;
        yield* compactErased(clients, "quick", { largest: 0 });
        yield* holdsAll;

        // For one that began before it waits, for a time; then there would be no way to drop what it began.
        const [warning] = yield* inspector.withTransaction(
          Effect.andThen(
            seeing(inspector, "chat"),
            warningsOf(
              Effect.map(compactErased(clients, "thorough", { largest: 0, patience: 1 }), (done) =>
                assert.isFalse(done),
              ),
            ),
          ),
        );
        assert.include(warning, "a transaction that began before may still read it");
        yield* holdsAll;
        assert.deepStrictEqual(yield* unfinished, []);

        // One that is interrupted leaves nothing.
        const third = yield* another;
        const ended = yield* Deferred.make<void>();
        const first = yield* Effect.forkChild(
          inspector.withTransaction(
            Effect.andThen(seeing(inspector, "chat"), Deferred.await(ended)),
          ),
        );
        yield* Effect.sleep("100 millis");
        const rebuilding = yield* Effect.forkChild(
          compactErased(clients, "thorough", { largest: 0 }),
        );
        yield* Effect.repeat(
          sql.unsafe(
            "select from pg_stat_activity where query like '%pg_replication_' || 'slots%'",
          ),
          { until: (waiting) => waiting.length > 0 },
        );
        /** Sees all that has ended, so that nobody waits for it before an index is rebuilt. */
        const seeingAll = seeing(third, "tally").pipe(
          Effect.andThen(
            third.unsafe<{ readonly all: boolean }>(
              "select pg_snapshot_xmin(now) = pg_snapshot_xmax(now) as all from pg_current_snapshot() now",
            ),
          ),
          Effect.filterOrFail(
            ([found]) => found!.all,
            () => "others write",
          ),
        );
        const meanwhile = third.withTransaction(
          Effect.gen(function* () {
            yield* seeingAll;
            yield* Deferred.succeed(ended, undefined);
            yield* Fiber.join(first);
            yield* Effect.repeat(unfinished, { until: (names) => names.length > 0 });
            yield* Fiber.interrupt(rebuilding);
            assert.deepStrictEqual(yield* unfinished, []);
            yield* sql.unsafe("set lock_timeout = '300ms'");
            for (const name of ["chat_name", "request_pkey"])
              yield* Effect.ignore(sql.unsafe(`reindex index concurrently ${name}`));
          }),
        );
        yield* Effect.retry(meanwhile, { while: (error) => error === "others write" });

        // What one left that was killed is dropped by any.
        assert.deepStrictEqual(yield* unfinished, ["chat_name_ccnew", "request_pkey_ccnew"]);
        yield* compactErased(clients, "quick", { largest: 0 });
        assert.deepStrictEqual(yield* unfinished, []);

        // Several at once, and beside others that write and wait.
        const create = store.createChat(
          filledChatbot,
          { name: "n", userRef: "u", helloMessage: null },
          { key: "k", fingerprint: "f" },
        );
        const busy = yield* Effect.forkChild(
          Effect.forever(Effect.all([create, Effect.sleep("1 millis")])),
        );
        const compactions = Array.from({ length: 2 }, () =>
          warningsOf(
            Effect.map(compactErased(clients, "thorough", { largest: 0 }), (done) =>
              assert.isTrue(done),
            ),
          ),
        );
        const warnings = yield* Effect.all(compactions, { concurrency: "unbounded" });
        yield* Fiber.interrupt(busy);
        assert.deepStrictEqual([warnings.flat(), yield* unfinished], [[], []]);
        assert.deepStrictEqual(yield* held, [0, 0, 0, 0]);
      }).pipe(Effect.scoped),
    60_000,
  );
});

describe("indexes with erased texts", () => {
  it.live.runIf(inject("postgresVersion") >= 17)(
    "are tried again by a role that does not own them, where others were in the way alone",
    () =>
      Effect.gen(function* () {
        const { another, clients, server } = yield* fewErased;
        const own = yield* Effect.provide(makeClients(server), Reactivity.layer);
        const reader = yield* another;
        const using = yield* lasting(reader, reader.unsafe("select count(name) from chat"));
        const compact = (by: Clients, limits = {}) => compactErased(by, "thorough", limits);
        const [busy] = yield* warningsOf(
          Effect.map(
            compact(doing(own, "pg_total_relation_size", using.begin), { patience: 3 }),
            assert.isFalse,
          ),
        ).pipe(Effect.ensuring(using.end));
        assert.include(busy, "chat_folded_name: others in the database are in the way");
        assert.deepStrictEqual(yield* warningsOf(Effect.map(compact(own), assert.isTrue)), []);
        const [large] = yield* warningsOf(Effect.map(compact(own, { largest: 0 }), assert.isTrue));
        assert.include(large, "their owner can REINDEX them");
        assert.isTrue(yield* compact(clients, { largest: 0 }));
      }).pipe(Effect.scoped),
  );

  it.live("are not tried again where nothing would end the waiting for others", () =>
    Effect.gen(function* () {
      const { clients } = yield* fewErased;
      // As a pooler that drops the setting.
      const pooled = { ...clients, migrator: () => clients.migrator({ lockTimeout: "0" }) };
      const compact = compactErased(pooled, "thorough", { largest: 0 });
      const [warning] = yield* warningsOf(Effect.map(compact, assert.isTrue));
      assert.include(warning, "lock_timeout cannot be set");
      const [first] = yield* warningsOf(compactErased(pooled, "full", { largest: 0 }));
      assert.include(first, "chat, entry, request: lock_timeout cannot be set");
    }).pipe(Effect.scoped),
  );
});
