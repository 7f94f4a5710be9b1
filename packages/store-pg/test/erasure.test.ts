import { assert, describe, it } from "@effect/vitest";
import { ChatArchive, ChatStore, newestChats, TurnStore } from "@parley/core";
import { registerChatbot } from "@parley/core/testing";
import { layerPostgres, type PostgresOptions } from "@parley/store-pg";
import { Deferred, Effect, Fiber, Layer, Logger, Redacted } from "effect";
import { Reactivity } from "effect/reactivity";
import { inject } from "vitest";
import { makeClients } from "../src/Clients.ts";
import { compactErased } from "../src/Compaction.ts";
import { setMilestones } from "../src/Milestones.ts";
import { makeChatArchive } from "../src/PgChatArchive.ts";
import { plainSession, type Session } from "../src/Session.ts";
import { fillChats, filledChatbot, settle } from "./fill.ts";
import {
  bound,
  clientOf,
  freshDatabase,
  freshSchema,
  inDatabase,
  optionsOf,
} from "./PostgresUnderTest.ts";

const secret = "Zugspitzpanorama";

const stored = ({ schema, ...options }: ReturnType<typeof optionsOf>) => ({
  schema,
  store: layerPostgres({ schema, ...options }),
});

/** Which is not told of the owner of the tables, once that has made them. */
const onItsOwn = (options: ReturnType<typeof optionsOf>) => {
  const { schema, store } = stored(options);
  const made = Effect.provide(Effect.void, store);
  const own = layerPostgres({ ...options, migrationUrl: undefined });
  return { schema, store: Layer.unwrap(Effect.as(made, own)) };
};

/** Before, only owners could maintain tables. */
const maintainers = inject("postgresVersion") >= 17;

describe.each([
  { of: "", openIn: (schema: string) => stored(optionsOf(schema)) },
  {
    of: " in a schema that must be quoted",
    openIn: (schema: string) => stored(optionsOf(`The "schema" ${schema}`)),
  },
  {
    of: " of a server that row security binds",
    openIn: (schema: string) => stored({ ...optionsOf(schema), ...bound() }),
  },
  ...[
    {
      of: " of a server that knows no owner of the tables",
      openIn: (schema: string) => onItsOwn({ ...optionsOf(schema), ...bound() }),
    },
  ].filter(() => maintainers),
])("an erasure$of", ({ openIn }) => {
  it.live("leaves nothing of the erased text in any table or index", () => {
    const { schema, store } = openIn(freshSchema());
    return Effect.gen(function* () {
      const sql = yield* clientOf(schema);
      const chatbot = yield* registerChatbot;
      const chats = yield* ChatStore;
      const turns = yield* TurnStore;
      for (let n = 0; n < 20; n++) {
        const { chat } = yield* chats.createChat(
          chatbot,
          { name: `${secret} ${n}`, userRef: secret, helloMessage: `${secret} ${n}` },
          { key: `${secret} ${n}`, fingerprint: "f" },
        );
        const taken = yield* turns.take(chatbot, chat.id, {
          key: `${secret} ask ${n}`,
          fingerprint: "f",
        });
        if (taken._tag !== "Turn") return assert.fail("the turn is free");
        yield* turns.append(taken.turn, {
          question: secret,
          answer: secret.repeat(1000),
          moderation: "none",
          flagged: false,
          usage: {
            provider: secret,
            model: secret,
            promptTokens: 1,
            completionTokens: 1,
            attempts: 1,
            latencyMillis: 1,
          },
        });
        // One whose process was killed, and whose turn another took.
        yield* turns.take(chatbot, chat.id, { key: `${secret} killed ${n}`, fingerprint: "f" });
        for (const table of ["chat", "request"])
          yield* sql.unsafe(`update ${table} set turn_until = now()`);
        const over = yield* turns.take(
          chatbot,
          chat.id,
          n % 2 === 0 ? null : { key: `${n}`, fingerprint: "f" },
        );
        if (over._tag !== "Turn") return assert.fail("the turn ran out");
        yield* turns.release(over.turn);
      }
      yield* chats.listChats(chatbot, { ...newestChats, search: secret });
      assert.isAbove(yield* occurrences(sql, schema, secret), 0);
      const erased = yield* ChatArchive.use((archive) =>
        archive.erase(chatbot, { _tag: "UserRef", userRef: secret }),
      );
      assert.strictEqual(erased, 20);
      yield* ChatArchive.use((archive) => archive.compact("thorough"));
      assert.strictEqual(yield* occurrences(sql, schema, secret), 0);
      const vacuumed = yield* sql.unsafe(
        `select from pg_stat_user_tables
        where schemaname = $1 and relname in ('chat', 'entry', 'request') and last_vacuum is not null`,
        [schema],
      );
      assert.strictEqual(vacuumed.length, 3);
    }).pipe(Effect.provide(store), Effect.scoped);
  });

  it.live("leaves nothing in the statistics", () => {
    const { schema, store } = openIn(freshSchema());
    return Effect.gen(function* () {
      const sql = yield* clientOf(schema);
      const chatbot = yield* registerChatbot;
      const chats = yield* ChatStore;
      const archive = yield* ChatArchive;
      for (let n = 0; n < 50; n++) {
        yield* chats.createChat(
          chatbot,
          { name: `${secret} ${n % 5}`, userRef: secret, helloMessage: secret },
          { key: `${secret} ${n}`, fingerprint: "f" },
        );
      }
      const statistics = Effect.map(
        sql.unsafe<{ readonly column: string }>(
          `select attname as column from pg_stats where schemaname = $1
          and (most_common_vals::text ilike $2 or histogram_bounds::text ilike $2) order by 1`,
          [schema, `%${secret}%`],
        ),
        (rows) => rows.map(({ column }) => column),
      );
      yield* archive.compact("thorough");
      // Of retry keys none are gathered.
      assert.deepStrictEqual(yield* statistics, ["answer", "folded_name", "name", "user_ref"]);
      yield* archive.erase(chatbot, { _tag: "UserRef", userRef: secret });
      yield* archive.compact("thorough");
      assert.deepStrictEqual(yield* statistics, []);
    }).pipe(Effect.provide(store), Effect.scoped);
  });
});

describe("an erasure", () => {
  it.live("of nearly all in a large table leaves nothing in the statistics", () =>
    Effect.gen(function* () {
      const { name, sql, url } = yield* freshDatabase();
      // So that ANALYZE looks at 300 pages.
      yield* sql.unsafe(`alter database ${name} set default_statistics_target = 1`);
      yield* Effect.gen(function* () {
        const chatbot = yield* registerChatbot;
        yield* sql.unsafe(
          `insert into entry (chatbot_id, id, chat_id, position, question, answer, moderation, flagged, create_time)
          select $1, n, 1, n, $2, repeat($2, 100), '', false, now() from generate_series(1, 12000) n`,
          [chatbot, secret],
        );
        yield* sql.unsafe("analyze entry");
        const found = sql.unsafe(
          "select from pg_stats where tablename = 'entry' and most_common_vals::text like $1",
          [`%${secret}%`],
        );
        assert.lengthOf(yield* found, 1);
        yield* sql.unsafe("delete from entry where position < 12000");
        yield* sql.unsafe("update entry set question = '', answer = ''");
        yield* ChatArchive.use((archive) => archive.compact("thorough"));
        assert.lengthOf(yield* found, 0);
      }).pipe(Effect.provide(layerPostgres({ url })));
    }).pipe(Effect.scoped),
  );

  it.live("reads no more of a large chatbot among many small ones than it erases", () =>
    Effect.gen(function* () {
      const { sql, url } = yield* freshDatabase();
      yield* Effect.provide(Effect.void, layerPostgres({ url }));
      const [large, small] = [40_000, 20_000];
      yield* fillChats(sql, filledChatbot, large);
      yield* sql.unsafe(
        `insert into chat (chatbot_id, id, position, create_time, entries)
        select n, $1::int8 + n, 1, now(), 0 from generate_series(1, $2::int4) n`,
        [large, small],
      );
      yield* settle(sql);
      yield* setMilestones(plainSession(sql), filledChatbot);
      /** Entries of indexes that others read; they tell it at the latest when they are closed. */
      const read = Effect.map(
        sql.unsafe<{ readonly read: bigint }>(
          "select sum(idx_tup_read)::int8 as read from pg_stat_user_indexes where relname = 'chat'",
        ),
        ([row]) => Number(row!.read),
      );
      yield* sql.unsafe("select pg_stat_force_next_flush()");
      const before = yield* read;
      yield* Effect.gen(function* () {
        const archive = yield* ChatArchive;
        for (let id = 1; id <= 20; id++) {
          assert.strictEqual(
            yield* archive.erase(filledChatbot, { _tag: "Chat", id: id * 100 }),
            1,
          );
        }
        const which = { _tag: "UserRef", userRef: "user 7" } as const;
        assert.strictEqual(yield* archive.erase(filledChatbot, which), 90);
      }).pipe(Effect.provide(layerPostgres({ url })));
      yield* Effect.sleep("200 millis");
      assert.isBelow((yield* read) - before, large / 3);
    }).pipe(Effect.scoped),
  );

  it.live("takes fewer chats at a time when they are long, so that asks do not wait for it", () => {
    const options = optionsOf(freshSchema());
    return Effect.gen(function* () {
      const sql = yield* clientOf(options.schema);
      const chatbot = yield* registerChatbot;
      const clients = yield* makeClients({ ...options, maxConnections: 1 });
      let transactions = 0;
      const transaction: Session["transaction"] = (subject, effect) => {
        transactions++;
        return clients.patient.transaction(subject, effect);
      };
      const archive = makeChatArchive({ ...clients, patient: { ...clients.patient, transaction } });
      for (const which of [
        { _tag: "UserRef", userRef: "u" },
        { _tag: "IdleSince", limit: new Date("2100-01-01") },
      ] as const) {
        const chat = { name: null, userRef: "u", helloMessage: null };
        const store = yield* ChatStore;
        yield* Effect.forEach(Array.from({ length: 7 }), () =>
          store.createChat(chatbot, chat, null),
        );
        yield* sql.unsafe("update chat set entries = 40000 where position % 7 > 0");
        yield* sql.unsafe("update chat set entries = 1000000 where position % 7 = 0");
        transactions = 0;
        assert.strictEqual(yield* archive.erase(chatbot, which), 7);
        // Three and three, and the longest by itself.
        assert.strictEqual(transactions, 3);
      }
    }).pipe(
      Effect.provide(layerPostgres(options)),
      Effect.provide(Reactivity.layer),
      Effect.scoped,
    );
  });

  it.live("of many chats ends while more are made", () => {
    const options = optionsOf(freshSchema());
    return Effect.gen(function* () {
      const chatbot = yield* registerChatbot;
      const clients = yield* makeClients({ ...options, maxConnections: 1 });
      const store = yield* ChatStore;
      const chat = { name: null, userRef: "u", helloMessage: null };
      const create = store.createChat(chatbot, chat, null);
      const transaction: Session["transaction"] = (subject, effect) =>
        Effect.tap(clients.patient.transaction(subject, effect), () => Effect.orDie(create));
      const archive = makeChatArchive({ ...clients, patient: { ...clients.patient, transaction } });
      const later = new Date("2100-01-01");
      for (const which of [
        { _tag: "UserRef", userRef: "u" },
        { _tag: "IdleSince", limit: later },
      ] as const) {
        yield* Effect.repeat(create, { times: 2 });
        const { total } = yield* store.listChats(chatbot, newestChats);
        assert.strictEqual(yield* archive.erase(chatbot, which), total);
        assert.strictEqual((yield* store.listChats(chatbot, newestChats)).total, 1);
      }
    }).pipe(
      Effect.timeout("10 seconds"),
      Effect.provide(layerPostgres(options)),
      Effect.provide(Reactivity.layer),
      Effect.scoped,
    );
  });

  it.live.runIf(maintainers)(
    "is ended as well as can be by a server that may not maintain its tables",
    () => {
      const schema = freshSchema();
      const owner = optionsOf(schema);
      const server = { ...owner, url: Redacted.make(inject("roleUrls").server) };
      return Effect.gen(function* () {
        const sql = yield* clientOf(schema);
        const vacuumed = Effect.map(
          sql.unsafe(
            "select from pg_stat_user_tables where schemaname = $1 and relname = 'chat' and last_vacuum is not null",
            [schema],
          ),
          (rows) => rows.length === 1,
        );
        const compacted = (options: PostgresOptions) =>
          warningsOf(ChatArchive.use((archive) => archive.compact("thorough"))).pipe(
            Effect.provide(layerPostgres(options)),
          );
        yield* Effect.provide(Effect.void, layerPostgres({ ...server, migrationUrl: owner.url }));
        yield* sql.unsafe(`revoke maintain on all tables in schema ${schema} from parley_server`);
        const [warning] = yield* compacted(server);
        assert.include(warning, "until their owner VACUUMs and REINDEXes them");
        assert.isFalse(yield* vacuumed);
        // By the owner's connection it is done.
        assert.deepStrictEqual(yield* compacted({ ...server, migrationUrl: owner.url }), []);
        assert.isTrue(yield* vacuumed);
      }).pipe(Effect.scoped);
    },
  );

  it.live(
    "of chats among many others leaves nothing of them in the indexes of texts",
    () =>
      Effect.gen(function* () {
        const { clients, erase, held, inspector, sql } = yield* amongOthers(false);
        // However slow the machine is.
        const compact = compactErased(clients, "quick", { longest: 10_000 });
        yield* erase;
        yield* sql.unsafe("vacuum (index_cleanup on) chat, request");
        const afterVacuum = yield* held;
        assert.isTrue(afterVacuum.every((count) => count > 0));
        // Who reads it all keeps the indexes as they are, and is not waited for.
        yield* inspector.withTransaction(
          Effect.andThen(
            inspector.unsafe("select count(*) from chat, lateral (select count(*) from request) r"),
            Effect.timeout(compact, "20 seconds"),
          ),
        );
        assert.deepStrictEqual(yield* held, afterVacuum);
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
        const { another, clients, erase, held, inspector, sql, store } = yield* amongOthers(true);
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
        const kept = yield* held;
        assert.isTrue(kept.every((count) => count > 0));

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
        assert.deepStrictEqual([yield* held, yield* unfinished], [kept, []]);

        // One that is interrupted leaves nothing.
        const third = yield* another;
        const ended = yield* Deferred.make<void>();
        const first = yield* Effect.forkChild(
          inspector.withTransaction(
            Effect.andThen(seeing(inspector, "chat"), Deferred.await(ended)),
          ),
        );
        const rebuilding = yield* Effect.forkChild(
          Effect.delay(compactErased(clients, "thorough", { largest: 0 }), "100 millis"),
        );
        yield* third.withTransaction(
          Effect.gen(function* () {
            yield* Effect.sleep("500 millis");
            yield* seeing(third, "tally");
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

const warningsOf = Effect.fnUntraced(function* <A, E, R>(effect: Effect.Effect<A, E, R>) {
  const warnings: Array<string> = [];
  const logger = Logger.make(({ logLevel, message }) => {
    if (logLevel === "Warn") warnings.push(String(message));
  });
  yield* Effect.provide(effect, Logger.layer([logger]));
  return warnings;
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
  const counts = yield* held;
  assert.isTrue(counts.slice(0, 3).every((count) => count >= 270) && counts[3]! > 0);
  const erase = Effect.forEach(
    made.filter((_, n) => !isKept(n)),
    ({ chat }) => archive.erase(filledChatbot, { _tag: "Chat", id: chat.id }),
    { discard: true },
  );
  const another = clientOf("parley", 1, url);
  return { another, clients, erase, held, inspector, sql, store };
});

/** How many rows of all tables hold the text. */
const occurrences = Effect.fnUntraced(function* (
  sql: Effect.Success<ReturnType<typeof clientOf>>,
  schema: string,
  text: string,
) {
  const tables = yield* sql.unsafe<{ readonly tablename: string }>(
    "select tablename from pg_tables where schemaname = $1",
    [schema],
  );
  let found = 0;
  for (const { tablename } of tables) {
    const [row] = yield* sql.unsafe<{ readonly n: number }>(
      `select count(*)::int4 as n from ${tablename} t where t::text ilike $1`,
      [`%${text}%`],
    );
    found += row!.n;
  }
  return found;
});
