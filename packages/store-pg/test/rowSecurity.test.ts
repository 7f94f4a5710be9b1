import { assert, describe, it } from "@effect/vitest";
import {
  ChatArchive,
  ChatbotDirectory,
  ChatbotRegistry,
  ChatStore,
  newest,
  newestChats,
  TurnStore,
} from "@parley/core";
import { registerChatbot } from "@parley/core/testing";
import { layerPostgres, lettingInSql, type PostgresOptions } from "@parley/store-pg";
import { Cause, Effect, Exit, Fiber, Layer, Redacted, Stream } from "effect";
import { Reactivity } from "effect/reactivity";
import type { SqlClient } from "effect/sql";
import { inject } from "vitest";
import { makeClients, type Clients } from "../src/Clients.ts";
import { makeChatArchive } from "../src/archive/PgChatArchive.ts";
import { makeCreations } from "../src/Creations.ts";
import { makeChatStore } from "../src/PgChatStore.ts";
import { makeTurnStore } from "../src/PgTurnStore.ts";
import type { Session, Subject } from "../src/Session.ts";
import { bound, clientOf, freshSchema, optionsOf } from "./PostgresUnderTest.ts";
import { meetingDeadlock } from "./Blocked.ts";

const boundOptions = (schema = freshSchema()) => ({ ...optionsOf(schema), ...bound() });

const start = (options: PostgresOptions) =>
  Layer.build(Layer.fresh(layerPostgres(options))).pipe(Effect.scoped);

const refusal = (options: PostgresOptions) =>
  Effect.map(Effect.flip(start(options)), ({ message }) => {
    assert.notInclude(message, "\n");
    return message;
  });

/** Clients as the store makes them. */
const clientsOf = (options: ReturnType<typeof optionsOf>, rowSecurity: boolean) =>
  makeClients({ ...options, maxConnections: 2, rowSecurity }).pipe(
    Effect.provide(Reactivity.layer),
  );

const tables = [
  "api_key",
  "audit",
  "chat",
  "chatbot",
  "entry",
  "fold",
  "parley_schema",
  "idempotency_key",
  "position_gap",
  "chat_counter",
] as const;
/** Those whose rows are of one chatbot each, and by which column. */
const ownerOf = {
  api_key: "chatbot_id",
  audit: "chatbot_id",
  chat: "chatbot_id",
  chatbot: "id",
  entry: "chatbot_id",
  idempotency_key: "chatbot_id",
  position_gap: "chatbot_id",
  chat_counter: "chatbot_id",
} as const;

const views = ["own_chat"] as const;

const chat = { name: "Alpha", userRef: "u", helloMessage: "Hello" };
const entry = {
  question: "q",
  answer: "a",
  moderation: "none",
  flagged: false,
  usage: {
    provider: "p",
    model: "m",
    promptTokens: 1,
    completionTokens: 1,
    attempts: 1,
    latencyMillis: 1,
  },
};

/** A chatbot with rows in every table. */
const inhabited: Effect.Effect<
  number,
  unknown,
  ChatStore | TurnStore | ChatArchive | ChatbotRegistry
> = Effect.gen(function* () {
  const chatbot = yield* registerChatbot;
  yield* registerKey(chatbot);
  const store = yield* ChatStore;
  const turns = yield* TurnStore;
  for (const n of [1, 2, 3, 4]) {
    const { chat: made } = yield* store.createChat(chatbot, chat, {
      key: `c${n}`,
      fingerprint: "f",
    });
    const taken = yield* turns.take(chatbot, made.id, { key: `a${n}`, fingerprint: "f" });
    if (taken._tag === "Turn") yield* turns.append(taken.turn, entry);
    if (n === 1) {
      const archive = yield* ChatArchive;
      yield* archive.erase(chatbot, { _tag: "Chat", id: made.id }, "test");
    }
  }
  return chatbot;
});

let keys = 0;

const registerKey = (chatbot: number) =>
  Effect.gen(function* () {
    const key = {
      id: `key ${Date.now()} ${++keys}`,
      hash: new Uint8Array(32),
      name: null,
      scopes: [],
      expiresAt: null,
    };
    yield* ChatbotRegistry.use((registry) => registry.addKey(chatbot, key, "test"));
    return key.id;
  });

/** All rows of all chatbots, or of one. */
const contents = (sql: SqlClient.SqlClient, chatbot: number | null = null) =>
  Effect.forEach(Object.entries(ownerOf), ([table, column]) =>
    sql.unsafe(
      `select t::text as row from ${table} t where $1::int is null or ${column} = $1 order by 1`,
      [chatbot],
    ),
  );

/** What would be if every statement forgot whose rows it is about. */
const withoutConditions = (clients: Clients): Clients => {
  const cut = (text: string) =>
    text.replace(
      /\b(\w+\.)?chatbot_id = (\$1|chat_counter\.chatbot_id)\b/g,
      "$$1::int is not null",
    );
  const forgetful = (session: Session): Session => ({
    ...session,
    query: (subject, text, values) => session.query(subject, cut(text), values),
    stream: (subject, text, values) => session.stream(subject, cut(text), values),
  });
  const { archives, passes, patient, reads, writes } = clients;
  return {
    ...clients,
    reads: forgetful(reads),
    writes: forgetful(writes),
    passes: forgetful(passes),
    patient: forgetful(patient),
    archives: forgetful(archives),
  };
};

/** Two inhabited chatbots in one schema, and clients bound and plain. */
const twoTenants = Effect.gen(function* () {
  const options = boundOptions();
  const stores = yield* Layer.build(layerPostgres(options));
  const [ours, theirs] = yield* Effect.provideContext(Effect.all([inhabited, inhabited]), stores);
  const sql = yield* clientOf(options.schema);
  return {
    ours: ours!,
    theirs: theirs!,
    stores,
    bound: yield* clientsOf(options, true),
    plain: yield* clientsOf(optionsOf(options.schema), false),
    sql,
  };
});

describe("a server that asks for row security", () => {
  it.live("is refused as superuser, as owner of the tables, and as a role that bypasses it", () =>
    Effect.gen(function* () {
      const { superuser, bypassing } = inject("roleUrls");
      for (const [url, why] of [
        [superuser, "is a superuser"],
        [inject("postgresUrl"), "owns the tables"],
        [bypassing, "bypasses it"],
      ] as const) {
        const options = { ...boundOptions(), url: Redacted.make(url) };
        assert.include(yield* refusal(options), `which ${why}: let the server connect as another`);
      }
    }),
  );

  it.live("is refused where it is not turned on, and as a role that was let in without", () =>
    Effect.gen(function* () {
      const options = boundOptions();
      yield* start({
        ...options,
        url: Redacted.make(inject("roleUrls").server),
        rowSecurity: false,
      });
      const asServer = { ...options, url: Redacted.make(inject("roleUrls").server) };
      const alone = { ...options, migrationUrl: undefined };
      assert.include(yield* refusal(alone), 'the role "parley_bound" may not use the schema');
      for (const one of [asServer, { ...asServer, migrationUrl: undefined }]) {
        assert.include(yield* refusal(one), "was let into all chatbots by a server without it");
      }
      // It serves without, as before; the other is bound now, and serves with it only.
      yield* start({ ...asServer, rowSecurity: false });
      yield* start(options);
      yield* start({ ...asServer, rowSecurity: false });
      yield* start(alone);
      for (const migrationUrl of [options.migrationUrl, undefined]) {
        assert.include(
          yield* refusal({ ...options, migrationUrl, rowSecurity: false }),
          'row security binds the role "parley_bound" in the table "api_key"',
        );
      }
      yield* start(alone);
    }),
  );

  it.live("serves beside one without, which sees as much as before", () =>
    Effect.gen(function* () {
      const options = boundOptions();
      const server = Redacted.make(inject("roleUrls").server);
      const list = (more: Partial<PostgresOptions>, chatbot: number) =>
        ChatStore.use((store) => store.listChats(chatbot, newestChats)).pipe(
          Effect.provide(Layer.fresh(layerPostgres({ ...options, ...more }))),
        );
      const without = { url: server, rowSecurity: false };
      const chatbot = yield* Effect.provide(
        inhabited,
        Layer.fresh(layerPostgres({ ...options, ...without })),
      );
      const before = yield* list(without, chatbot);
      assert.strictEqual(before.total, 3);
      assert.deepStrictEqual(yield* list({}, chatbot), before);
      for (const more of [without, { ...without, migrationUrl: undefined }]) {
        assert.deepStrictEqual(yield* list(more, chatbot), before);
      }
    }),
  );

  it.live("is refused when one table is free of it", () =>
    Effect.gen(function* () {
      const options = boundOptions();
      yield* start(options);
      const sql = yield* clientOf(options.schema);
      yield* sql.unsafe("alter table position_gap disable row level security");
      const message = yield* refusal({ ...options, migrationUrl: undefined });
      assert.include(message, 'row security is off in the table "position_gap"');
      // The owner of the tables turns it on again.
      yield* start(options);
      yield* start({ ...options, migrationUrl: undefined });
    }).pipe(Effect.scoped),
  );

  it.live("leaves alone what others have in the schema", () =>
    Effect.gen(function* () {
      const options = boundOptions();
      const sql = yield* clientOf(options.schema);
      yield* sql.unsafe(`create schema ${options.schema}`);
      yield* sql.unsafe("create table invoice (id int)");
      yield* sql.unsafe("create sequence invoice_number");
      yield* start(options);
      yield* start({
        ...options,
        url: Redacted.make(inject("roleUrls").server),
        rowSecurity: false,
      });
      const [invoice] = yield* sql.unsafe(
        `select relrowsecurity, relacl, (select count(*) from pg_policy where polrelid = oid) as policies
        from pg_class where oid = 'invoice'::regclass`,
      );
      assert.deepStrictEqual(invoice, { relrowsecurity: false, relacl: null, policies: 0n });
      const [number] = yield* sql.unsafe(
        "select relacl from pg_class where oid = 'invoice_number'::regclass",
      );
      assert.deepStrictEqual(number, { relacl: null });
    }),
  );

  it.live("is refused when one table is shut to it", () =>
    Effect.gen(function* () {
      for (const rowSecurity of [true, false]) {
        const options = boundOptions();
        const url = rowSecurity ? options.url : Redacted.make(inject("roleUrls").server);
        const alone = { ...options, url, rowSecurity, migrationUrl: undefined };
        yield* start({ ...options, url, rowSecurity });
        yield* start(alone);
        const sql = yield* clientOf(options.schema, 1);
        const role = rowSecurity ? "parley_bound" : "parley_server";
        yield* sql.unsafe(`revoke select on position_gap from ${role}`);
        assert.include(
          yield* refusal(alone),
          `the role "${role}" may not read the table "position_gap"`,
        );
      }
    }).pipe(Effect.scoped),
  );

  it.live("starts five at once on an empty schema", () =>
    Effect.gen(function* () {
      const options = boundOptions();
      yield* Effect.all(
        Array.from({ length: 5 }, () => start(options)),
        { concurrency: 5 },
      );
    }),
  );

  it.live("is let in although others lock the tables in another order", () =>
    Effect.gen(function* () {
      const options = boundOptions();
      yield* start(optionsOf(options.schema));
      const statements = yield* lettingInSql(options);
      const order = [...statements.matchAll(/alter table (\w+) enable/g)].map(([, name]) => name);
      const [earlier = "", later = ""] = [order[0], order.at(-1)];
      yield* meetingDeadlock(options.schema, { earlier, later }, start(options));
      assert.strictEqual(yield* lettingInSql(options), "");
    }).pipe(Effect.scoped),
  );

  it.live("has policies in every table, and no more rights than it needs", () =>
    Effect.gen(function* () {
      const options = boundOptions();
      yield* start(options);
      const sql = yield* clientOf(options.schema, 1, options.url);
      const found = yield* sql.unsafe<{ readonly name: string; readonly active: boolean }>(
        `select relname as name, row_security_active(c.oid) and exists (
          select from pg_policy where polrelid = c.oid) as active
        from pg_class c where relnamespace = $1::regnamespace and relkind in ('r', 'p') order by relname`,
        [options.schema],
      );
      assert.deepStrictEqual(
        found.map(({ active, name }) => [name, active]),
        tables.map((name) => [name, true]),
      );
      for (const statement of [
        "create table t (n int)",
        "drop table chat",
        "alter table chat disable row level security",
        "alter role current_user bypassrls",
        "truncate chat",
        "update audit set actor = 'nobody'",
        "delete from audit",
        "insert into fold values (2)",
        "delete from parley_migration",
      ]) {
        assert.strictEqual((yield* Effect.exit(sql.unsafe(statement)))._tag, "Failure", statement);
      }
    }).pipe(Effect.scoped),
  );
});

describe("a statement of one chatbot", () => {
  it.live("without any condition sees that chatbot's rows alone", () =>
    Effect.gen(function* () {
      const { bound, ours, plain } = yield* twoTenants;
      for (const [table, column] of Object.entries(ownerOf)) {
        const all = `select ${column} as chatbot from ${table}`;
        const everybody = yield* plain.reads.query<{ readonly chatbot: number }>(ours, all);
        const own = everybody.filter(({ chatbot }) => chatbot === ours);
        assert.isAbove(own.length, 0, table);
        assert.isAbove(everybody.length, own.length, table);
        for (const session of [
          bound.reads,
          bound.writes,
          bound.passes,
          bound.patient,
          bound.archives,
        ]) {
          assert.deepStrictEqual(yield* session.query(ours, all), own, table);
          assert.deepStrictEqual(
            yield* session.transaction(ours, session.query(ours, all)),
            own,
            table,
          );
          assert.deepStrictEqual(
            yield* Stream.runCollect(session.stream(ours, all, [])),
            own,
            table,
          );
          // What ran before on the same connections is forgotten.
          assert.deepStrictEqual(yield* session.query(2_000_000, all), [], table);
        }
      }
    }).pipe(Effect.scoped),
  );

  it.live("changes and adds nothing of another's", () =>
    Effect.gen(function* () {
      const { bound, ours, sql, theirs } = yield* twoTenants;
      const before = yield* contents(sql);
      for (const [table, column] of Object.entries(ownerOf)) {
        const run = (statement: string) => Effect.exit(bound.writes.query(ours, statement));
        if (table !== "audit") {
          for (const statement of [
            `update ${table} set ${table === "chatbot" ? "name = name" : `${column} = ${column}`}
              where ${column} = ${theirs} returning 1`,
            `delete from ${table} where ${column} = ${theirs} returning 1`,
          ]) {
            assert.deepStrictEqual(yield* run(statement), Exit.succeed([]), statement);
          }
        }
        // Everything of one's own may be changed, but not into another's.
        const given = yield* run(`update ${table} set ${column} = ${theirs}`);
        assert.strictEqual(given._tag, "Failure", table);
      }
      for (const statement of [
        `insert into chat_counter (chatbot_id, chats, positions, last_time) values (${theirs}, 9, 9, now())
          on conflict (chatbot_id) do update set chats = 9`,
        `insert into position_gap (chatbot_id, part_size, number, chats_before) values (${theirs}, 9, 9, '{}')`,
        `insert into chat (chatbot_id, id, position, create_time, entries) values (${theirs}, 9, 9, now(), 0)`,
        `insert into entry (chatbot_id, id, chat_id, position, question, answer, moderation, flagged, create_time)
          values (${theirs}, 9, 9, 9, 'q', 'a', 'none', false, now())`,
        `insert into idempotency_key (chatbot_id, key, fingerprint, made_at) values (${theirs}, 'k', 'f', now())`,
        `insert into api_key (id, chatbot_id, hash, scopes) values ('stolen', ${theirs}, '', '{}')`,
        `insert into audit (actor, chatbot_id, action, detail) values ('a', ${theirs}, 'a', 'd')`,
      ]) {
        const exit = yield* Effect.exit(bound.writes.query(ours, statement));
        assert.strictEqual(exit._tag, "Failure", statement);
        assert.match(
          Cause.pretty((exit as Exit.Failure<never, unknown>).cause),
          /row-level security/,
        );
      }
      assert.deepStrictEqual(yield* contents(sql), before);
    }).pipe(Effect.scoped),
  );

  it.live("and one about a key, about operators or about nobody sees no chats of anyone", () =>
    Effect.gen(function* () {
      const { bound, ours, stores } = yield* twoTenants;
      const key = yield* Effect.provideContext(registerKey(ours), stores);
      const count = (subject: Subject, table: string) =>
        Effect.map(
          bound.reads.query<{ readonly n: number }>(
            subject,
            `select count(*)::int as n from ${table}`,
          ),
          ([row]) => row!.n,
        );
      for (const table of [
        "chat",
        "entry",
        "idempotency_key",
        "chat_counter",
        "position_gap",
        ...views,
      ]) {
        for (const subject of ["operator", { key }, { key: "unknown" }, -1] as const) {
          assert.strictEqual(yield* count(subject, table), 0, table);
        }
      }
      assert.strictEqual(yield* count({ key }, "api_key"), 1);
      assert.strictEqual(yield* count({ key }, "chatbot"), 1);
      assert.strictEqual(yield* count({ key }, "audit"), 0);
      assert.strictEqual(yield* count({ key: "unknown" }, "api_key"), 0);
      assert.strictEqual(yield* count({ key: "" }, "chatbot"), 0);
      assert.strictEqual(yield* count("operator", "chatbot"), 2);
      assert.isAbove(yield* count("operator", "audit"), 1);
      // Only what the owner of the tables says lets anything be seen.
      for (const table of [...Object.keys(ownerOf), ...views]) {
        const counted = `do $$ begin if exists (select from ${table}) then raise 'seen'; end if; end $$`;
        for (const session of [bound.reads, bound.writes]) yield* session.command(counted);
      }
    }).pipe(Effect.scoped),
  );
});

describe("the store with the condition on the chatbot cut out of every statement", () => {
  const cases = ["bound by row security", "as it is"] as const;
  for (const mode of cases) {
    it.live(
      `${mode}: ${mode === "as it is" ? "shows what is cut out" : "shows no foreign row"}`,
      () =>
        Effect.gen(function* () {
          const tenants = yield* twoTenants;
          const { ours, sql, stores, theirs } = tenants;
          const clients = withoutConditions(mode === "as it is" ? tenants.plain : tenants.bound);
          const make = yield* makeCreations(clients);
          const store = yield* makeChatStore(clients, make);
          const turns = yield* makeTurnStore(clients, make, () => Stream.empty, "parley");
          const archive = makeChatArchive(clients);
          const theirChats = (yield* Effect.provideContext(
            ChatStore.use((intact) => intact.listChats(theirs, newestChats)),
            stores,
          )).items;
          const [theirChat] = theirChats;
          const before = yield* contents(sql, theirs);
          let foreign = 0;
          const see = (ids: ReadonlyArray<number>) => {
            foreign += ids.filter((id) => theirChats.some((one) => one.id === id)).length;
          };
          for (const query of [
            {},
            { page: 2, limit: 1 },
            { id: theirChat!.id },
            { userRef: "u" },
            { search: "alph" },
            { search: "alph", page: 2, limit: 2 },
            { orderBy: [{ field: "name", descending: false }] },
            { orderBy: [{ field: "id", descending: false }] },
            { userRef: "u", orderBy: [{ field: "name", descending: true }] },
          ] as const) {
            const exit = yield* Effect.exit(store.listChats(ours, { ...newestChats, ...query }));
            if (Exit.isFailure(exit)) continue;
            see(exit.value.items.map(({ id }) => id));
            if (exit.value.total > 3) foreign++;
          }
          const history = yield* Effect.exit(store.listEntries(ours, theirChat!.id, newest));
          if (Exit.isSuccess(history)) see(history.value.items.map(({ chatId }) => chatId));
          const records = yield* Effect.exit(Stream.runCollect(archive.export(ours, "test")));
          if (Exit.isSuccess(records)) {
            see(records.value.map((one) => (one._tag === "Chat" ? one.chat.id : one.entry.chatId)));
          }
          const usage = yield* archive.usage(ours, new Date(0));
          if (usage[0]!.answers > 3) foreign++;
          const taken = yield* Effect.exit(turns.take(ours, theirChat!.id, null));
          if (Exit.isSuccess(taken) && taken.value._tag === "Turn") {
            foreign++;
            yield* Effect.exit(turns.append(taken.value.turn, entry));
          }
          yield* Effect.exit(turns.take(ours, null, { key: "a2", fingerprint: "f" }));
          yield* Effect.exit(archive.erase(ours, { _tag: "Chat", id: theirChat!.id }, "test"));
          yield* Effect.exit(archive.erase(ours, { _tag: "UserRef", userRef: "u" }, "test"));
          yield* Effect.exit(archive.erase(ours, { _tag: "IdleSince", limit: new Date() }, "test"));
          const unchanged = JSON.stringify(yield* contents(sql, theirs)) === JSON.stringify(before);
          if (mode === "as it is") {
            assert.isAbove(foreign, 10);
            assert.isFalse(unchanged);
          } else {
            assert.strictEqual(foreign, 0);
            assert.isTrue(unchanged);
          }
        }).pipe(Effect.scoped),
    );
  }
});

describe("a bound session", () => {
  it.live("keeps thousands of statements apart that share its connections", () =>
    Effect.gen(function* () {
      const { bound } = yield* twoTenants;
      const said =
        "select current_setting('parley.chatbot', true) as chatbot, pg_backend_pid() as pid";
      const pids = new Set<number>();
      for (const session of [bound.reads, bound.passes]) {
        yield* Effect.forEach(
          Array.from({ length: 2_000 }, (_, n) => n),
          (n) => {
            const statement = session.query<{ readonly chatbot: string; readonly pid: number }>(
              n,
              said,
            );
            const sent =
              n % 5 === 0
                ? session.transaction(n, Effect.andThen(Effect.yieldNow, statement))
                : n % 7 === 0
                  ? Effect.flatMap(Effect.forkChild(statement), (fiber) =>
                      Effect.andThen(Effect.yieldNow, Fiber.interrupt(fiber)),
                    )
                  : n % 11 === 0
                    ? Effect.ignore(session.query(n, "select 1 / ($1::int - $1::int)", [n]))
                    : statement;
            return Effect.map(sent, (rows) => {
              if (!Array.isArray(rows)) return;
              assert.strictEqual(rows[0].chatbot, String(n));
              pids.add(rows[0].pid);
            });
          },
          { concurrency: 50 },
        );
      }
      assert.isAbove(pids.size, 2);
    }).pipe(Effect.scoped),
  );

  it.live("undoes a transaction that fails, and leaves none open", () =>
    Effect.gen(function* () {
      const { bound, ours, sql } = yield* twoTenants;
      const { writes } = bound;
      const before = yield* contents(sql);
      const rename = writes.query(ours, "update chat set name = 'x' where chatbot_id = $1", [ours]);
      const fails = writes.query(ours, "select 1 / 0");
      for (const one of [
        writes.transaction(ours, Effect.andThen(rename, fails)),
        writes.transaction(ours, Effect.andThen(rename, Effect.fail("no"))),
        writes.transaction(ours, Effect.andThen(rename, Effect.die("no"))),
        writes.transaction(ours, Effect.andThen(rename, writes.query(-1, "select 1"))),
        writes.transaction(ours, Effect.andThen(rename, writes.transaction(-1, Effect.void))),
        writes.query(ours, "update chat set name = (1 / 0)::text"),
        // A part that fails is undone, and so is the whole when it goes on to fail.
        writes.transaction(
          ours,
          Effect.andThen(
            Effect.exit(writes.transaction(ours, Effect.andThen(rename, fails))),
            fails,
          ),
        ),
      ]) {
        assert.strictEqual((yield* Effect.exit(one))._tag, "Failure");
      }
      const slow = Effect.andThen(rename, writes.query(ours, "select pg_sleep(30)"));
      yield* Effect.exit(Effect.timeout(writes.transaction(ours, slow), "100 millis"));
      assert.deepStrictEqual(yield* contents(sql), before);
      const open = yield* sql.unsafe(
        `select from pg_stat_activity where usename = 'parley_bound' and state like 'idle in transaction%'
          and query_start > clock_timestamp() - interval '1 minute'`,
      );
      assert.deepStrictEqual(open, []);
      // A part that fails and is put up with leaves the rest.
      yield* writes.transaction(
        ours,
        Effect.andThen(Effect.exit(writes.transaction(ours, fails)), rename),
      );
      assert.notDeepEqual(yield* contents(sql), before);
    }).pipe(Effect.scoped),
  );

  it.live("looks a key up by its id alone", () =>
    Effect.gen(function* () {
      const { ours, stores } = yield* twoTenants;
      const key = yield* Effect.provideContext(registerKey(ours), stores);
      const directory = yield* Effect.provideContext(ChatbotDirectory, stores);
      assert.strictEqual((yield* directory.open(key))?.chatbot.id, ours);
      assert.isNull(yield* directory.open("unknown"));
    }).pipe(Effect.scoped),
  );
});
