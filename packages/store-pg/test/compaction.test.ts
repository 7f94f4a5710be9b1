/**
 * That nothing of erased texts is left in the pages of tables and indexes, and what others in the database can do
 * about it.
 */
import type * as PgClient from "@effect/sql-pg/PgClient";
import { assert, describe, it } from "@effect/vitest";
import { ChatArchive, ChatStore, TurnStore, type CompactionPace } from "@parley/core";
import { registerChatbot } from "@parley/core/testing";
import { layerPostgres } from "@parley/store-pg";
import { Deferred, Effect, Exit, Fiber, Layer, Redacted, Schedule } from "effect";
import { Reactivity } from "effect/reactivity";
import type { SqlError } from "effect/sql";
import { inject } from "vitest";
import { makeClients, type Clients } from "../src/Clients.ts";
import { compactErased } from "../src/Compaction.ts";
import type { Session } from "../src/Session.ts";
import { fillChats, filledChatbot, settle } from "./fill.ts";
import { bound, clientOf, freshDatabase, inDatabase, warningsOf } from "./PostgresUnderTest.ts";

const secret = "Zugspitzpanorama";

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
          const compact = compactErased(doing(clients, "vacuum (", reading.begin), "thorough", {
            patience: 1,
          });
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
        compactErased(doing(clients, "vacuum (", standing.begin), "thorough"),
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
            yield* reader.unsafe("set local enable_seqscan = off");
            yield* reader.unsafe("set local enable_bitmapscan = off");
            yield* reader.unsafe(
              `declare c cursor for select name from chat where chatbot_id = ${filledChatbot} order by name`,
            );
            yield* reader.unsafe("fetch 1 from c");
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

describe("bytes of erased texts", () => {
  const some = Effect.gen(function* () {
    const { another, clients, chatbot, erase, inspector, sql, store, turns } = yield* fewErased;
    // So long that some of it is stored elsewhere, however well it is compressed.
    const text = () => Array.from({ length: 500 }, () => `${secret} ${Math.random()}`).join(" ");
    for (let n = 0; n < 40; n++) {
      const isErased = n % 8 === 0;
      const own = isErased ? text() : text().replaceAll(secret, "somebody else");
      const chat = { name: own.slice(0, 250), userRef: isErased ? "u" : null, helloMessage: own };
      const key = `${own.slice(0, 20)} ${n}`;
      const made = yield* store.createChat(chatbot, chat, { key, fingerprint: "f" });
      const taken = yield* turns.take(chatbot, made.chat.id, null);
      if (taken._tag !== "Turn") return assert.fail("the turn is free");
      const entry = { moderation: "none", flagged: false, usage: null };
      yield* turns.append(taken.turn, { question: own.slice(0, 1000), answer: own, ...entry });
    }
    yield* sql.unsafe("analyze");
    // Compressed texts have the rest in parts.
    const beginning = secret.slice(0, 7);
    /** Relations in whose files they are, as they are or in the small letters of searches. */
    const held = Effect.gen(function* () {
      yield* inspector.unsafe("checkpoint");
      const found = yield* inspector.unsafe<{ readonly name: string }>(
        `select name from (
          select oid::regclass::text as name, pg_read_binary_file(pg_relation_filepath(oid)) as file
          from pg_class where relkind in ('r', 'i', 't', 'm') and relpersistence = 'p'
            and pg_relation_filepath(oid) like 'base/%'
        ) files
        where position($1::bytea in file) > 0 or position($2::bytea in file) > 0 order by 1`,
        [Buffer.from(beginning), Buffer.from(beginning.toLowerCase())],
      );
      return found.map(({ name }) => name.replace(/\d+$/, ""));
    });
    return { another, clients, erase, held, inspector, sql };
  });

  for (const { limits, pace } of [
    { pace: "thorough" as const, limits: { longest: 10_000 } },
    { pace: "full" as const, limits: { largest: 0 } },
  ]) {
    const size = pace === "thorough" ? "small" : "large";
    it.live(
      `are in no file of ${size} tables after a ${pace} compaction`,
      () =>
        Effect.gen(function* () {
          const { clients, erase, held, inspector, sql } = yield* some;
          assert.includeMembers(yield* held, ["chat", "entry", "request", "pg_toast.pg_toast_"]);
          yield* erase;
          // As one that was killed left it.
          yield* sql.unsafe("create index chat_name_ccnew on chat (name)");
          yield* inspector.unsafe(
            "update pg_index set indisvalid = false where indexrelid = 'chat_name_ccnew'::regclass",
          );
          const compact = compactErased(clients, pace, limits);
          // An autovacuum is in the way for a while.
          const left = yield* Effect.repeat(Effect.andThen(compact, held), {
            until: (names) => names.length === 0,
            times: 9,
          });
          assert.deepStrictEqual(left, []);
          const unseen = yield* sql.unsafe(
            `select relname from pg_class where relname in ('chat', 'entry', 'request')
              and relallvisible < relpages or relname = 'chat_name_ccnew'`,
          );
          assert.deepStrictEqual(unseen, []);
        }).pipe(Effect.scoped),
      60_000,
    );
  }

  it.live("stay where somebody uses the tables, and nobody waits for ever", () =>
    Effect.gen(function* () {
      const { another, clients, erase } = yield* fewErased;
      yield* erase;
      const user = yield* another;
      const using = yield* lasting(user, user.unsafe("select from chat limit 1"));
      const busy = doing(clients, "vacuum (full) ", using.begin);
      const compact = compactErased(busy, "full", { patience: 1 });
      const [warning] = yield* warningsOf(Effect.map(compact, assert.isFalse));
      assert.include(warning, "others hold its tables");
      yield* using.end;
      assert.isTrue(yield* compactErased(clients, "full"));
    }).pipe(Effect.timeout("20 seconds"), Effect.scoped),
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
      assert.include(first, "chat, entry, request, pg_catalog.pg_statistic: lock_timeout cannot");
    }).pipe(Effect.scoped),
  );
});

/** A transaction that goes on after the first that it does. */
const lasting = Effect.fnUntraced(function* (
  client: PgClient.PgClient,
  first: Effect.Effect<unknown, SqlError.SqlError>,
) {
  const begun = yield* Deferred.make<void>();
  const ended = yield* Deferred.make<void>();
  const whole = client.withTransaction(
    first.pipe(
      Effect.andThen(Deferred.succeed(begun, undefined)),
      Effect.andThen(Deferred.await(ended)),
    ),
  );
  return {
    begin: Effect.andThen(Effect.forkDetach(Effect.exit(whole)), Deferred.await(begun)),
    end: Deferred.succeed(ended, undefined),
  };
});

/** Does something before the first statement of the owner that contains so much. */
const doing = (clients: Clients, part: string, effect: Effect.Effect<void>): Clients => {
  let isDone = false;
  const before = (text: string) =>
    Effect.suspend(() => {
      if (isDone || !text.includes(part)) return Effect.void;
      isDone = true;
      return effect;
    });
  return {
    ...clients,
    migrator: (settings) =>
      Effect.map(clients.migrator(settings), (session): Session => ({
        ...session,
        command: (text, values) => Effect.andThen(before(text), session.command(text, values)),
        query: <Row extends object>(
          ...[subject, text, values]: Parameters<Session["query"]>
        ): Effect.Effect<ReadonlyArray<Row>, SqlError.SqlError> =>
          Effect.andThen(before(text), session.query<Row>(subject, text, values)),
      })),
  };
};

/** A store whose few chats can be erased, with many names in its index, in a database of its own. */
const fewErased = Effect.gen(function* () {
  const { name, sql, url } = yield* freshDatabase();
  const superuser = Redacted.make(inject("roleUrls").superuser);
  const inspector = yield* clientOf("parley", 1, inDatabase(name, superuser));
  yield* inspector.unsafe("create extension pageinspect with schema public");
  yield* sql.unsafe("create table public.elsewhere (n int)");
  const options = { schema: "parley", maxConnections: 1 };
  const server = { ...options, url: inDatabase(name, Redacted.make(inject("roleUrls").server)) };
  const services = yield* Layer.build(layerPostgres({ ...server, migrationUrl: url }));
  const [store, archive, turns] = yield* Effect.provideContext(
    Effect.all([ChatStore, ChatArchive, TurnStore]),
    services,
  );
  const chatbot = yield* Effect.provideContext(registerChatbot, services);
  yield* fillChats(sql, filledChatbot, 1_000);
  yield* Effect.forEach(
    Array.from({ length: 20 }),
    () => store.createChat(chatbot, { name: secret, userRef: "u", helloMessage: null }, null),
    { concurrency: 20 },
  );
  const clients = yield* Effect.provide(makeClients({ ...options, url }), Reactivity.layer);
  const left = Effect.map(
    inspector.unsafe<{ readonly n: number }>(
      `select count(*)::int4 as n
      from generate_series(0, (pg_relation_size('chat') / 8192 - 1)::int4) page,
        lateral public.heap_page_items(public.get_raw_page('chat', page)) item
      where position($1::bytea in t_data) > 0`,
      [Buffer.from(secret)],
    ),
    ([row]) => row!.n,
  );
  return {
    another: clientOf("parley", 1, url),
    chatbot,
    clients,
    inspector,
    store,
    turns,
    erase: archive.erase(chatbot, { _tag: "UserRef", userRef: "u" }),
    left,
    server,
    sql,
  };
});

/** Chats whose texts are to be erased, and some that are not, among many others in a database of their own. */
const amongOthers = Effect.fnUntraced(function* (rowSecurity: boolean) {
  // VACUUM leaves what others in the same database may still read.
  const { name, sql, url } = yield* freshDatabase();
  const superuser = Redacted.make(inject("roleUrls").superuser);
  const inspector = yield* clientOf("parley", 1, inDatabase(name, superuser));
  yield* inspector.unsafe("create extension pageinspect with schema public");
  const options = {
    schema: "parley",
    ...(rowSecurity
      ? { rowSecurity, url: inDatabase(name, bound().url), migrationUrl: url }
      : { url }),
  };
  const services = yield* Layer.build(layerPostgres(options));
  const clients = yield* Effect.provide(
    makeClients({ ...options, maxConnections: 1 }),
    Reactivity.layer,
  );
  yield* fillChats(sql, filledChatbot, 12_000);
  yield* settle(sql);
  const [store, archive] = yield* Effect.provideContext(
    Effect.all([ChatStore, ChatArchive]),
    services,
  );
  // All but every tenth, in no order, so that some come to bound pages.
  const isKept = (n: number) => n % 10 === 0;
  const chats = Array.from({ length: 300 }, (_, n) => `${(n * 7919) % 300}`.padStart(5, "0"));
  const made = yield* Effect.forEach(
    chats,
    (place, n) => {
      const text = `${place} ${isKept(n) ? "somebody else" : secret}`;
      const chat = { name: text, userRef: text, helloMessage: null };
      return store.createChat(filledChatbot, chat, { key: text, fingerprint: "f" });
    },
    { concurrency: 500 },
  );
  /** Items of a B-tree whose key holds the secret, dead or not; pages of a GIN index that hold a part of it, a number. */
  const heldIn = (index: string) =>
    Effect.map(
      inspector.unsafe<{ readonly n: number }>(
        index === "chat_folded_name"
          ? `select count(*)::int4 as n
            from generate_series(1, (pg_relation_size('${index}') / 8192 - 1)::int8) page
            where position($1::bytea in public.get_raw_page('parley.${index}', page)) > 0`
          : `select count(*)::int4 as n
            from generate_series(1, (pg_relation_size('${index}') / 8192 - 1)::int8) page,
              lateral public.bt_page_items('parley.${index}', page) item
            where position($1 in replace(item.data, ' ', '')) > 0`,
        [index === "chat_folded_name" ? Buffer.from("apz\0") : Buffer.from(secret).toString("hex")],
      ),
      ([row]) => row!.n,
    );
  const held = Effect.all(
    ["chat_name", "chat_user_ref", "request_pkey", "chat_folded_name"].map(heldIn),
  );
  /** How much is another matter: a writer in another database can keep what VACUUM would remove. */
  const holdsAll = Effect.map(held, (counts) => assert.isTrue(counts.every((count) => count > 0)));
  const counts = yield* held;
  assert.isTrue(counts.slice(0, 3).every((count) => count >= 270) && counts[3]! > 0);
  const erase = Effect.forEach(
    made.filter((_, n) => !isKept(n)),
    ({ chat }) => archive.erase(filledChatbot, { _tag: "Chat", id: chat.id }),
    { discard: true },
  );
  const another = clientOf("parley", 1, url);
  return { another, clients, erase, held, holdsAll, inspector, sql, store };
});
