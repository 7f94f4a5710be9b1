import { assert, describe, it } from "@effect/vitest";
import { ChatArchive, ChatStore, newestChats, TurnStore } from "@parley/core";
import { registerChatbot } from "@parley/core/testing";
import { layerPostgres, type PostgresOptions } from "@parley/store-pg";
import { Effect, Layer, Redacted } from "effect";
import { Reactivity } from "effect/reactivity";
import { inject } from "vitest";
import { makeClients } from "../src/Clients.ts";
import { makeChatArchive } from "../src/PgChatArchive.ts";
import { plainSession, type Session } from "../src/Session.ts";
import { fillChats, filledChatbot, settle } from "./fill.ts";
import {
  bound,
  clientOf,
  freshDatabase,
  inDatabase,
  freshSchema,
  optionsOf,
  warningsOf,
} from "./PostgresUnderTest.ts";

const secret = "Zugspitzpanorama";

/** Of who is not told of the owner of the tables, once that has made them. */
const layerOnItsOwn = (options: PostgresOptions) => {
  const made = Effect.provide(Effect.void, layerPostgres(options));
  const own = layerPostgres({ ...options, migrationUrl: undefined });
  return Layer.unwrap(Effect.as(made, own));
};

/** A database of its own, because an erasure waits for all that goes on in it, and what a server has to know. */
const aloneIn = Effect.fnUntraced(function* (schema: string, role: "owner" | "bound") {
  const { name, url } = yield* freshDatabase();
  const server =
    role === "owner"
      ? { url }
      : { ...bound(), url: inDatabase(name, bound().url), migrationUrl: url };
  const superuser = inDatabase(name, Redacted.make(inject("roleUrls").superuser));
  const inspector = yield* clientOf(schema, 1, superuser);
  yield* inspector.unsafe("create extension pageinspect with schema public");
  return { inspector, options: { ...server, schema }, sql: yield* clientOf(schema, 2, url) };
});

/** Before, only owners could maintain tables. */
const maintainers = inject("postgresVersion") >= 17;

describe.each([
  { of: "", schema: "parley", role: "owner", layer: layerPostgres },
  {
    of: " in a schema that must be quoted",
    schema: 'The "schema"',
    role: "owner",
    layer: layerPostgres,
  },
  {
    of: " of a server that row security binds",
    schema: "parley",
    role: "bound",
    layer: layerPostgres,
  },
  ...[
    {
      of: " of a server that knows no owner of the tables",
      schema: "parley",
      role: "bound",
      layer: layerOnItsOwn,
    } as const,
  ].filter(() => maintainers),
] as const)("an erasure$of", ({ layer, role, schema }) => {
  it.live("leaves nothing of the erased text in any table or index", () =>
    Effect.gen(function* () {
      const { options, sql } = yield* aloneIn(schema, role);
      yield* Effect.gen(function* () {
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
          for (const table of ["chat", "idempotency_key"])
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
        where schemaname = $1 and relname in ('chat', 'entry', 'idempotency_key') and last_vacuum is not null`,
          [schema],
        );
        assert.strictEqual(vacuumed.length, 3);
      }).pipe(Effect.provide(layer(options)));
    }).pipe(Effect.scoped),
  );

  it.live("leaves nothing in the statistics", () =>
    Effect.gen(function* () {
      const { inspector, options, sql } = yield* aloneIn(schema, role);
      yield* Effect.gen(function* () {
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
        /** Rows with the text, dead or not. */
        const gathered = Effect.map(
          inspector.unsafe<{ readonly n: number }>(
            `select count(*)::int4 as n
            from generate_series(0, (pg_relation_size('pg_statistic') / 8192 - 1)::int4) page,
              lateral public.heap_page_items(public.get_raw_page('pg_statistic', page)) item
            where position($1::bytea in t_data) > 0`,
            [Buffer.from(secret)],
          ),
          ([row]) => row!.n,
        );
        yield* archive.compact("thorough");
        assert.isAbove(yield* gathered, 0);
        // Of retry keys none are gathered.
        assert.deepStrictEqual(yield* statistics, ["answer", "folded_name", "name", "user_ref"]);
        yield* archive.erase(chatbot, { _tag: "UserRef", userRef: secret });
        yield* archive.compact("thorough");
        assert.deepStrictEqual(yield* statistics, []);
        // Only who owns the database may remove what was gathered before.
        if (layer !== layerOnItsOwn) assert.strictEqual(yield* gathered, 0);
      }).pipe(Effect.provide(layer(options)));
    }).pipe(Effect.scoped),
  );
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
    () =>
      Effect.gen(function* () {
        const { options: owner, sql } = yield* aloneIn("parley", "owner");
        const name = new URL(Redacted.value(owner.url)).pathname.slice(1);
        const server = {
          ...owner,
          url: inDatabase(name, Redacted.make(inject("roleUrls").server)),
        };
        const vacuumed = Effect.map(
          sql.unsafe(
            "select from pg_stat_user_tables where relname = 'chat' and last_vacuum is not null",
          ),
          (rows) => rows.length === 1,
        );
        const compacted = (options: PostgresOptions) =>
          warningsOf(ChatArchive.use((archive) => archive.compact("thorough"))).pipe(
            Effect.provide(layerPostgres(options)),
          );
        yield* Effect.provide(Effect.void, layerPostgres({ ...server, migrationUrl: owner.url }));
        yield* sql.unsafe("revoke maintain on all tables in schema parley from parley_server");
        const [warning] = yield* compacted(server);
        assert.include(warning, "until their owner VACUUMs and REINDEXes them");
        assert.isFalse(yield* vacuumed);
        // By the owner's connection it is done.
        assert.deepStrictEqual(yield* compacted({ ...server, migrationUrl: owner.url }), []);
        assert.isTrue(yield* vacuumed);
      }).pipe(Effect.scoped),
  );
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
