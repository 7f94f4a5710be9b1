import { assert, describe, it } from "@effect/vitest";
import {
  ChatArchive,
  ChatbotDirectory,
  ChatbotRegistry,
  ChatStore,
  newest,
  newestChats,
  TurnStore,
  type ChatQuery,
} from "@parley/core";
import { chatbotRegistryChecks, modelCheck, registerChatbot } from "@parley/core/testing";
import { inspectPostgres, layerPostgres, lettingInSql, pendingSql } from "@parley/store-pg";
import { Effect, Fiber, Layer, Redacted, Schedule } from "effect";
import { Migrator, SqlClient } from "effect/sql";
import { createHash } from "node:crypto";
import { inject } from "vitest";
import { migrationLock, migrations, pendingSql as planned } from "../src/Migrations.ts";
import {
  bound,
  clientOf,
  freshDatabase,
  freshSchema,
  inDatabase,
  layerPostgresUnderTest,
  optionsOf,
} from "./PostgresUnderTest.ts";
import { blocked, meetingDeadlock } from "./Blocked.ts";

/**
 * They touch every table in every way. A schema that was brought up to date is like a new one, but for its data. From
 * which step makes no difference to these, since all end with one catalog; they run on the oldest that has chats.
 */
const everyTable = [...chatbotRegistryChecks, modelCheck({ runs: 15 })];

/** For a test that runs dozens of checks, in milliseconds. */
const ofManyChecks = 120_000;

const steps = Object.keys(migrations) as ReadonlyArray<keyof typeof migrations>;

/** The first digits of each step's SHA-256: what was released is not changed, but followed by a step that mends it. */
const digests: { readonly [Step in keyof typeof migrations]: string } = {
  "0001_chatbots": "5e981f7b9210f996",
  "0002_chats": "fa31b68c86858f51",
  "0003_administration": "9c0d2591e8428608",
  "0004_hole_groups": "edfc9c661f774035",
  "0005_row_security": "400684b130d65ba3",
  "0006_spans": "5e5334d76cfc1f34",
  "0007_milestones": "7ac1dee36ae94185",
  "0008_request_statistics": "f16c2d104234eff1",
};

/** What the version that a step came with would have left behind. */
const data: { readonly [Step in keyof typeof migrations]?: ReadonlyArray<string> } = {
  "0001_chatbots": [
    `insert into chatbot (workspace_name, name, description, settings) values
      ('Old', 'Bot', 'kept', '{"helloMessage":null,"moderationErrorMessage":"","instructions":null}')`,
    `insert into api_key (id, chatbot_id, hash, name, scopes, expires_at, revoked_at) values
      ('open', 1, '\\x0102', 'web', '{read,ask}', '2100-01-01T00:00:00Z', null),
      ('revoked', 1, '\\x03', null, '{write}', null, '2026-01-01T00:00:00Z')`,
    "insert into audit (actor, chatbot_id, action, detail) values ('operator', 1, 'create', 'Bot')",
  ],
  "0002_chats": [
    // Five are left of 300,000 chats, in two groups of blocks.
    `insert into chat (chatbot_id, id, position, name, user_ref, folded_name, create_time, entries, last_entry_time)
    values
      (1, 10, 1, 'Älpha', 'u', 'älpha', '2026-01-01T00:00:00.001Z', 2, '2026-01-03T00:00:00.003Z'),
      (1, 20, 4096, 'beta', null, 'beta', '2026-01-01T00:00:00.002Z', 0, null),
      (1, 30, 5000, null, 'u', null, '2026-01-01T00:00:00.003Z', 0, null),
      (1, 40, 270000, 'ALPHA', 'v', 'alpha', '2026-01-01T00:00:00.004Z', 0, null),
      (1, 50, 300000, 'beta', 'v', 'beta', '2026-01-01T00:00:00.004Z', 0, null)`,
    `insert into hole (chatbot_id, block, missing)
    select 1, (position - 1) / 4096, count(*) from generate_series(1, 300000) position
    where position not in (1, 4096, 5000, 270000, 300000) group by 2`,
    "insert into tally values (1, 5, 300000, '2026-01-01T00:00:00.004Z', 7)",
    // No chat was made, none is left, none was erased, and one is left, at the beginning of a span.
    `insert into chatbot (workspace_name, name, description, settings)
    select 'Old', 'Bot ' || n, '', '{"helloMessage":null,"moderationErrorMessage":"","instructions":null}'
    from generate_series(2, 5) n`,
    `insert into tally values (2, 0, 0, '2026-01-01', 0), (3, 0, 512, '2026-01-01', 1), (4, 1, 1, '2026-01-01', 0),
      (5, 1, 131073, '2026-01-01', 1)`,
    `insert into chat (chatbot_id, id, position, create_time, entries) values
      (4, 11, 1, '2026-01-01', 0), (5, 12, 131073, '2026-01-01', 0)`,
    `insert into hole (chatbot_id, block, missing)
    select 3, 0, 512 union all select 5, n, 4096 from generate_series(0, 31) n`,
    `insert into entry (chatbot_id, id, chat_id, position, question, answer, moderation, flagged, create_time,
      provider, model, prompt_tokens, completion_tokens, attempts, latency_millis)
    values
      (1, 5, 10, 1, '', 'Hello', 'none', false, '2026-01-01T00:00:00.001Z', null, null, null, null, null, null),
      (1, 7, 10, 2, 'q', 'a', 'hate', true, '2026-01-03T00:00:00.003Z', 'p', 'm', 3, 4, 1, 5)`,
    `insert into request (chatbot_id, key, fingerprint, made_at, turn, turn_until, chat_id, entry_id) values
      (1, 'create', 'f', now(), null, null, 20, null),
      (1, 'ask', 'f', now(), 'turn', null, 10, 7)`,
    "select setval('chat_id', 50), setval('entry_id', 7)",
  ],
};

/** Makes the first so many steps as the versions did that brought them, with their data. */
const release = (sql: SqlClient.SqlClient, count: number) =>
  Migrator.make({})({
    loader: Migrator.fromRecord(
      Object.fromEntries(
        steps.slice(0, count).map((step) => [
          step,
          Effect.forEach(
            [
              ...migrations[step]
                .replace(/^ *--.*$/gm, "")
                .split(/;$/m)
                .filter((part) => part.trim() !== ""),
              ...(data[step] ?? []),
            ],
            (statement) => sql.unsafe(statement),
          ),
        ]),
      ),
    ),
    table: "parley_migration",
  }).pipe(
    Effect.provideService(SqlClient.SqlClient, sql),
    // Two that find no extension cannot both make it.
    (made) => Effect.andThen(sql.unsafe("select pg_advisory_xact_lock($1)", [migrationLock]), made),
    sql.withTransaction,
    Effect.when(Effect.succeed(count > 0)),
  );

/** Runs a script as psql does: statement by statement. */
const runScript = (sql: SqlClient.SqlClient, text: string) =>
  Effect.forEach(
    text.split(/;$/m).filter((statement) => statement.trim() !== ""),
    (statement) => sql.unsafe(statement),
    { discard: true },
  );

const registryIsKept = Effect.gen(function* () {
  const registry = yield* ChatbotRegistry;
  const [kept] = yield* registry.list;
  if (kept === undefined) return assert.fail("the chatbot is there");
  assert.strictEqual(kept.chatbot.description, "kept");
  assert.deepStrictEqual(
    kept.keys.map(({ hash, id, name, scopes }) => ({ hash: [...hash], id, name, scopes })),
    [
      { hash: [1, 2], id: "open", name: "web", scopes: ["read", "ask"] },
      { hash: [3], id: "revoked", name: null, scopes: ["write"] },
    ],
  );
  const [noted] = yield* registry.audit(1);
  assert.strictEqual(noted?.actor, "operator");
  const directory = yield* ChatbotDirectory;
  assert.strictEqual((yield* directory.open("open"))?.chatbot.id, 1);
  assert.strictEqual(yield* directory.open("revoked"), null);
});

const chatsAreKept = Effect.gen(function* () {
  const [store, turns, archive] = [yield* ChatStore, yield* TurnStore, yield* ChatArchive];
  const ids = (query: Partial<ChatQuery>) =>
    Effect.map(store.listChats(1, { ...newestChats, ...query }), ({ items, total }) => [
      total,
      ...items.map(({ id }) => id),
    ]);
  const oldest = [{ field: "id", descending: false }] as const;
  const byName = [{ field: "name", descending: false }] as const;
  assert.deepStrictEqual(yield* ids({}), [5, 50, 40, 30, 20, 10]);
  assert.deepStrictEqual(yield* ids({ limit: 2, page: 2 }), [5, 30, 20]);
  assert.deepStrictEqual(yield* ids({ limit: 1, page: 4, orderBy: oldest }), [5, 40]);
  assert.deepStrictEqual(yield* ids({ orderBy: byName }), [5, 40, 20, 50, 10, 30]);
  assert.deepStrictEqual(yield* ids({ search: "LPHA" }), [2, 40, 10]);
  assert.deepStrictEqual(yield* ids({ userRef: "u" }), [2, 30, 10]);
  const { items } = yield* store.listEntries(1, 10, newest);
  assert.deepStrictEqual(items[0], {
    id: 7,
    chatId: 10,
    question: "q",
    answer: "a",
    moderation: "hate",
    flagged: true,
    createTime: new Date("2026-01-03T00:00:00.003Z"),
  });
  assert.strictEqual(items[1]?.answer, "Hello");
  const [usage] = yield* archive.usage(1, new Date(0));
  assert.strictEqual(usage?.completionTokens, 4);
  const again = yield* store.createChat(
    1,
    { name: "beta", userRef: null, helloMessage: null },
    { key: "create", fingerprint: "f" },
  );
  assert.deepStrictEqual([again.replayed, again.chat.id], [true, 20]);
  const done = yield* turns.take(1, 10, { key: "ask", fingerprint: "f" });
  assert.deepStrictEqual(done, { _tag: "Done", entry: items[0]!, turn: "turn" });
  const taken = yield* turns.take(1, 10, null);
  if (taken._tag !== "Turn") return assert.fail("the turn is free");
  assert.deepStrictEqual(taken.turn.newest, items);
  const entry = { question: "q", answer: "a", moderation: "none", flagged: false, usage: null };
  assert.isAbove((yield* turns.append(taken.turn, entry)).id, 7);
  assert.strictEqual(yield* archive.erase(1, { _tag: "Chat", id: 30 }), 1);
  const { chat } = yield* createOne(1);
  assert.isAbove(chat.id, 50);
  assert.deepStrictEqual(yield* ids({}), [5, chat.id, 50, 40, 20, 10]);
  assert.deepStrictEqual(yield* ids({ limit: 2, page: 2 }), [5, 40, 20]);
  assert.deepStrictEqual(yield* ids({ limit: 1, page: 3, orderBy: oldest }), [5, 40]);
});

/** Spans that are counted wrongly, or not although their chatbot has holes. */
const wrongSpans = `
select part_size, number from tally cross join unnest('{512,131072,33554432}'::int8[]) part_size
cross join generate_series(0, (positions - 1) / (part_size * 256)) number
left join span using (chatbot_id, part_size, number)
where chats < positions and chats_before is distinct from array(
  select n * part_size - (least(first + n * part_size, positions) - least(first, positions) - (
    select count(*) from chat
    where chatbot_id = tally.chatbot_id and position > first and position <= first + n * part_size
  ))
  from generate_series(0, 256) n, (values (number * part_size * 256)) span (first) order by n
)`;

/** A schema of the first so many steps, with their data. */
const released = Effect.fnUntraced(function* (count: number) {
  const schema = freshSchema();
  const sql = yield* clientOf(schema, 1);
  yield* sql.unsafe(`create schema ${schema}`);
  yield* release(sql, count);
  return { options: optionsOf(schema), schema, sql };
});

/** A schema with data whose holes are still counted per block and per group of blocks. */
const beforeSpans = released(steps.indexOf("0006_spans"));

/** Everything that the schema is made of, a text each. */
const catalogOf = (sql: SqlClient.SqlClient) =>
  Effect.map(
    sql.unsafe<{ readonly what: string }>(
      `with ours as (
        select * from pg_class where relnamespace = 'parley'::regnamespace
      ), described as (
        select jsonb_build_array(relname, relkind, relacl, reloptions, relrowsecurity, relforcerowsecurity) as what from ours
        union all select to_jsonb(c) from information_schema.columns c where table_schema = 'parley'
        union all select to_jsonb(i) from pg_indexes i where schemaname = 'parley'
        union all select jsonb_build_array(conrelid::regclass, conname, pg_get_constraintdef(oid))
          from pg_constraint where connamespace = 'parley'::regnamespace
        union all select to_jsonb(s) - 'last_value' from pg_sequences s where schemaname = 'parley'
        union all select to_jsonb(p) from pg_policies p where schemaname = 'parley'
        union all select jsonb_build_array(tgrelid::regclass, pg_get_triggerdef(t.oid))
          from pg_trigger t join ours on ours.oid = tgrelid where not tgisinternal
        union all select jsonb_build_array(oid::regprocedure, pg_get_functiondef(oid))
          from pg_proc where pronamespace = 'parley'::regnamespace
        union all select jsonb_build_array(extname, extnamespace::regnamespace) from pg_extension
        union all select to_jsonb(m) - 'created_at' from parley.parley_migration m
        union all select to_jsonb(f) from parley.fold f
      )
      select replace(what::text, current_database(), '') as what from described order by 1`,
    ),
    (rows) => rows.map(({ what }) => what),
  );

/** Of a schema that no earlier version made. */
const newCatalog = Effect.flatMap(freshDatabase(), (fresh) =>
  Effect.andThen(Effect.provide(Effect.void, layerPostgres(fresh)), catalogOf(fresh.sql)),
).pipe(Effect.scoped, Effect.cached, Effect.runSync);

const createOne = (chatbot: number) =>
  ChatStore.use((store) =>
    store.createChat(chatbot, { name: "n", userRef: null, helloMessage: "Hello" }, null),
  );

describe("migrations", () => {
  it("has steps that were never changed", () => {
    const now = Object.entries(migrations).map(([step, text]) => [
      step,
      createHash("sha256").update(text).digest("hex").slice(0, 16),
    ]);
    assert.deepStrictEqual(Object.fromEntries(now), digests);
  });

  it.live("five servers that start at once on an empty database all serve it", () =>
    Effect.gen(function* () {
      const { url } = yield* freshDatabase();
      const servers = yield* Effect.forEach(
        Array.from({ length: 5 }),
        () => Layer.build(Layer.fresh(layerPostgres({ url, maxConnections: 2 }))),
        { concurrency: 5 },
      );
      const chatbot = yield* Effect.provideContext(registerChatbot, servers[0]!);
      for (const server of servers) yield* Effect.provideContext(createOne(chatbot), server);
      const { total } = yield* ChatStore.use((store) => store.listChats(chatbot, newestChats)).pipe(
        Effect.provideContext(servers[4]!),
      );
      assert.strictEqual(total, 5);
    }).pipe(Effect.scoped),
  );

  it.live(
    "a role that owns nothing and may create nothing serves a schema that is up to date",
    () =>
      Effect.gen(function* () {
        const schema = freshSchema();
        const url = Redacted.make(inject("roleUrls").server);
        const owner = optionsOf(schema);
        const migrated = { ...owner, url, migrationUrl: owner.url };
        yield* Effect.provide(Effect.void, layerPostgres(owner));
        const shutOut = yield* Effect.flip(
          Effect.provide(Effect.void, layerPostgres({ ...owner, url })),
        );
        assert.include(shutOut.message, "may not use the schema");
        const dry = yield* Effect.flip(pendingSql({ ...owner, url }));
        assert.strictEqual(dry.message, shutOut.message);

        // The owner lets it in by hand, as it is told.
        const sql = yield* clientOf(schema, 1);
        const text = yield* lettingInSql(migrated);
        assert.include(text, "grant ");
        yield* runScript(sql, text);
        assert.strictEqual(yield* lettingInSql(migrated), "");

        const server = yield* clientOf(schema, 1, url);
        const [role] = yield* server.unsafe<{ readonly owns: boolean; readonly creates: boolean }>(
          `select has_schema_privilege(current_schema(), 'create') as creates,
          exists (select from pg_class where relnamespace = current_schema()::regnamespace
            and pg_has_role(relowner, 'usage')) as owns`,
        );
        assert.deepStrictEqual({ ...role }, { creates: false, owns: false });
        yield* Effect.gen(function* () {
          for (const { run } of everyTable) yield* run;
        }).pipe(Effect.provide(layerPostgresUnderTest({ schema, url })));
      }).pipe(Effect.scoped),
    ofManyChecks,
  );

  it.live("an inspection finds what the server's role may not write to", () =>
    Effect.gen(function* () {
      const owner = optionsOf(freshSchema());
      const url = Redacted.make(inject("roleUrls").server);
      const served = { ...owner, url, migrationUrl: owner.url };
      const closed = Effect.map(inspectPostgres(served), ({ writing }) => writing.closed);
      yield* Effect.provide(Effect.void, layerPostgres(served));
      assert.isNull(yield* closed);
      const sql = yield* clientOf(owner.schema!);
      for (const [what, privilege] of [
        ["entry", "insert on entry"],
        ["chat_id", "usage on sequence chat_id"],
        [null, "delete on chatbot"],
      ] as const) {
        yield* sql.unsafe(`revoke ${privilege} from parley_server`);
        assert.strictEqual(yield* closed, what);
        yield* sql.unsafe(`grant ${privilege} to parley_server`);
      }
    }).pipe(Effect.scoped),
  );

  it.live("makes the audit append-only again after a dump was restored without privileges", () =>
    Effect.gen(function* () {
      const options = optionsOf(freshSchema());
      const migrated = Effect.provide(Effect.void, layerPostgres(options));
      const inspected = Effect.map(inspectPostgres(options), ({ current }) => current);
      yield* migrated;
      const sql = yield* clientOf(options.schema, 1);
      const may = Effect.map(
        sql.unsafe<{ readonly may: boolean }>(
          "select has_table_privilege('audit', 'update, delete, truncate') as may",
        ),
        ([audit]) => audit!.may,
      );
      assert.isFalse(yield* may);
      assert.isTrue(yield* inspected);
      // So a table is that nobody granted anything of.
      yield* sql.unsafe("revoke all on audit from current_user");
      yield* sql.unsafe("grant all on audit to current_user");
      assert.isTrue(yield* may);
      assert.isFalse(yield* inspected);
      assert.include(yield* pendingSql(options), "revoke update, delete, truncate on audit");
      yield* migrated;
      assert.isFalse(yield* may);
      assert.strictEqual(yield* pendingSql(options), "");
    }).pipe(Effect.scoped),
  );

  it.live("makes the schema that a search path of several names first", () =>
    Effect.gen(function* () {
      const schema = freshSchema();
      const sql = yield* clientOf(schema, 1);
      yield* sql.unsafe(`set search_path = ${schema}, nowhere`);
      const text = yield* Effect.provideService(planned, SqlClient.SqlClient, sql);
      assert.include(text, `create schema "${schema}";`);
      yield* runScript(sql, text);
      yield* Effect.provide(Effect.void, layerPostgres(optionsOf(schema)));
    }).pipe(Effect.scoped),
  );

  it.live("a schema's name may be any", () =>
    Effect.gen(function* () {
      const schema = `${freshSchema()} "Quoted", Ünïcode`;
      yield* Effect.provide(
        Effect.flatMap(registerChatbot, createOne),
        layerPostgres(optionsOf(schema)),
      );
    }),
  );

  for (const [at, step] of ["nothing", ...steps.slice(0, -1)].entries()) {
    it.live(`what brings ${step} up to date can be seen beforehand, and run by hand`, () =>
      Effect.gen(function* () {
        const [byHand, byItself] = [yield* freshDatabase(), yield* freshDatabase()];
        for (const { sql } of [byHand, byItself]) {
          if (at > 0) yield* sql.unsafe("create schema parley");
          yield* release(sql, at);
        }
        const text = yield* pendingSql(byHand);
        assert.strictEqual(yield* pendingSql(byHand), text);
        assert.strictEqual(yield* pendingSql(byItself), text);
        yield* runScript(byHand.sql, text);
        assert.strictEqual(yield* pendingSql(byHand), "");
        yield* Effect.provide(Effect.void, layerPostgres(byItself));
        const ours = yield* catalogOf(byHand.sql);
        assert.isAbove(ours.length, 100);
        assert.deepStrictEqual(ours, yield* catalogOf(byItself.sql));
        if (at > 0) assert.deepStrictEqual(ours, yield* newCatalog);
        yield* Effect.provide(Effect.flatMap(registerChatbot, createOne), layerPostgres(byHand));
      }).pipe(Effect.scoped),
    );
  }

  for (const [at, step] of steps.entries()) {
    it.live(
      `a schema of ${step} with data in it is brought up to date, and loses nothing`,
      () =>
        Effect.gen(function* () {
          const { schema, sql } = yield* released(at + 1);
          if (at > 0) yield* sql.unsafe("analyze request");
          yield* Effect.gen(function* () {
            const statistics =
              "select attname from pg_stats where schemaname = $1 and tablename = 'request'";
            assert.deepStrictEqual(yield* sql.unsafe(statistics, [schema]), []);
            yield* registryIsKept;
            if (at > 0) {
              assert.deepStrictEqual(yield* sql.unsafe(wrongSpans), []);
              yield* chatsAreKept;
            }
            if (at === 1) for (const { run } of everyTable) yield* run;
          }).pipe(Effect.provide(layerPostgresUnderTest({ schema })));
        }).pipe(Effect.scoped),
      ofManyChecks,
    );
  }

  it.live("a server from before spans reads on while newer ones erase, and erases no more", () =>
    Effect.gen(function* () {
      const { options, sql } = yield* beforeSpans;
      const holes = Effect.all(
        [
          "select block_group, block, missing from hole where chatbot_id = 1 and missing > 0 order by block",
          "select block_group, missing from hole_group where chatbot_id = 1 and missing > 0 order by block_group",
        ].map((statement) => sql.unsafe<{ missing: number }>(statement)),
      );
      const [blocks, groups] = yield* holes;
      assert.deepStrictEqual([blocks!.length, groups!.length], [74, 2]);
      yield* ChatArchive.use((archive) => archive.erase(1, { _tag: "Chat", id: 30 })).pipe(
        Effect.provide(layerPostgres(options)),
      );
      // Position 5000.
      blocks![1]!.missing++;
      groups![0]!.missing++;
      assert.deepStrictEqual(yield* holes, [blocks, groups]);
      const erasing = yield* Effect.flip(
        sql.unsafe(`insert into hole as h (chatbot_id, block_group, block, missing) values (1, 0, 0, 1)
          on conflict (chatbot_id, block) do update set missing = h.missing + excluded.missing`),
      );
      assert.include(String(erasing.reason.cause), "cannot insert into view");
    }).pipe(Effect.scoped),
  );

  it.live("begins again when what serves meanwhile locks the tables in another order", () =>
    Effect.gen(function* () {
      const { options, schema } = yield* beforeSpans;
      yield* meetingDeadlock(
        schema,
        { earlier: "hole_group", later: "hole" },
        Effect.provide(Effect.void, layerPostgres(options)),
      );
    }).pipe(Effect.scoped),
  );

  for (const byHand of [false, true]) {
    it.live(`counts the holes of an erasure that ends meanwhile${byHand ? ", by hand" : ""}`, () =>
      Effect.gen(function* () {
        const { options, schema, sql } = yield* beforeSpans;
        const operator = yield* clientOf(schema, 1);
        yield* operator.unsafe("set default_transaction_isolation = 'repeatable read'");
        const text = yield* pendingSql(options);
        yield* blocked(
          sql,
          [
            "delete from chat where chatbot_id = 1 and position = 5000",
            "update tally set chats = chats - 1 where chatbot_id = 1",
            "update hole_group set missing = missing + 1 where chatbot_id = 1 and block_group = 0",
            "update hole set missing = missing + 1 where chatbot_id = 1 and block = 1",
          ],
          byHand
            ? Effect.orDie(runScript(operator, text))
            : Effect.orDie(Effect.provide(Effect.void, layerPostgres(options))),
        );
        assert.deepStrictEqual(yield* sql.unsafe(wrongSpans), []);
      }).pipe(Effect.scoped),
    );
  }

  for (const [at, step] of steps.slice(0, -1).entries()) {
    it.live(`leaves a schema of ${step} to whoever owns it when another role runs it by hand`, () =>
      Effect.gen(function* () {
        const { options, schema, sql } = yield* released(at + 1);
        const superuser = yield* clientOf(schema, 1, Redacted.make(inject("roleUrls").superuser));
        yield* runScript(superuser, yield* pendingSql(options));
        const foreign = yield* sql.unsafe(
          `select relname from pg_class where relnamespace = $1::regnamespace
            and relowner <> (select relowner from pg_class where oid = 'chatbot'::regclass)`,
          [schema],
        );
        assert.deepStrictEqual(foreign, []);
        const [audit] = yield* sql.unsafe<{ readonly may: boolean }>(
          "select has_table_privilege('audit', 'update') as may",
        );
        assert.isFalse(audit!.may);
        yield* Effect.provide(createOne(1), layerPostgres(options));
      }).pipe(Effect.scoped),
    );
  }

  for (const rowSecurity of [false, true]) {
    it.live(
      `keeps a role let in that row security ${rowSecurity ? "binds" : "does not bind"}`,
      () =>
        Effect.gen(function* () {
          const { options, schema, sql } = yield* beforeSpans;
          const url = Redacted.make(inject("roleUrls")[rowSecurity ? "bound" : "server"]);
          const served = { ...options, url, migrationUrl: options.url, rowSecurity };
          yield* runScript(sql, yield* lettingInSql(served));
          const server = yield* clientOf(schema, 1, url);
          yield* server.unsafe("select set_config('parley.chatbot', '1', false)");
          const seen = Effect.all(
            ["hole", "hole_group"].map((table) =>
              server.unsafe(`select count(*) from ${table} where chatbot_id = 1 and missing > 0`),
            ),
          );
          const before = yield* seen;
          yield* runScript(sql, yield* pendingSql(options));
          assert.deepStrictEqual(yield* seen, before);
          assert.strictEqual(yield* lettingInSql(served), "");
          yield* Effect.provide(Effect.void, layerPostgres({ ...served, migrationUrl: undefined }));
        }).pipe(Effect.scoped),
    );
  }

  for (const [what, statement] of [
    ["a newer schema", "insert into parley_migration (migration_id, name) values (99, 'later')"],
    ["names folded otherwise", "update fold set version = 99"],
  ] as const) {
    it.live(`${what} is not served`, () =>
      Effect.gen(function* () {
        const options = optionsOf(freshSchema());
        yield* Effect.provide(Effect.void, layerPostgres(options));
        const sql = yield* clientOf(options.schema!);
        yield* sql.unsafe(statement);
        const error = yield* Effect.flip(Effect.provide(Effect.void, layerPostgres(options)));
        assert.match(error.message, /^The database cannot be used: its .*99/);
        assert.strictEqual((yield* Effect.flip(pendingSql(options))).message, error.message);
        // Nor is anybody let in.
        const { server } = inject("roleUrls");
        const served = { ...options, url: Redacted.make(server), migrationUrl: options.url };
        const again = yield* Effect.flip(Effect.provide(Effect.void, layerPostgres(served)));
        assert.strictEqual(again.message, error.message);
        assert.notStrictEqual(yield* lettingInSql(served), "");
      }).pipe(Effect.scoped),
    );
  }

  for (const [what, schema, reason] of [
    ["with a name that PostgreSQL cuts off", "s".repeat(64), "at most 63 bytes"],
    ["of one connection alone", "pg_temp", 'no schema can be named "pg_temp"'],
    ["that is another for each role", "$user", 'no schema can be named "$user"'],
  ] as const) {
    it.live(`a schema ${what} is refused, and nothing made`, () =>
      Effect.gen(function* () {
        const { sql, url } = yield* freshDatabase();
        yield* sql.unsafe("create schema authorization current_user");
        const options = { url, schema };
        const error = yield* Effect.flip(Effect.provide(Effect.void, layerPostgres(options)));
        assert.include(error.message, reason);
        assert.include((yield* Effect.flip(pendingSql(options))).message, reason);
        const made = yield* sql.unsafe(
          `select from pg_class where relname = 'chat'
          union all select from pg_namespace where nspname like 'sss%'`,
        );
        assert.strictEqual(made.length, 0);
      }).pipe(Effect.scoped),
    );
  }

  it.live("both addresses must lead to one database", () =>
    Effect.gen(function* () {
      const [owner, other] = [yield* freshDatabase(), yield* freshDatabase()];
      // Also when there is the schema in either.
      yield* Effect.provide(Effect.void, layerPostgres({ url: other.url }));
      for (const more of [{ url: other.url }, bound()]) {
        const url = inDatabase(other.name, more.url);
        const options = { ...more, url, migrationUrl: owner.url };
        const error = yield* Effect.flip(Effect.provide(Effect.void, layerPostgres(options)));
        assert.include(error.message, "lead to different databases");
      }
    }).pipe(Effect.scoped),
  );

  it.live("a database whose indexes give but some of what they find is refused", () =>
    Effect.gen(function* () {
      const { name, sql, url } = yield* freshDatabase();
      yield* sql.unsafe(`alter database ${name} set gin_fuzzy_search_limit = 50`);
      const error = yield* Effect.flip(Effect.provide(Effect.void, layerPostgres({ url })));
      assert.include(error.message, "gin_fuzzy_search_limit is 50");
    }).pipe(Effect.scoped),
  );

  it.live("a connection that is lost in the middle is told in one line", () =>
    Effect.gen(function* () {
      const { sql, url } = yield* freshDatabase();
      const error = yield* sql.withTransaction(
        Effect.gen(function* () {
          yield* sql.unsafe(`select pg_advisory_xact_lock(${migrationLock})`);
          const migrating = yield* Effect.forkChild(
            Effect.flip(Effect.provide(Effect.void, layerPostgres({ url }))),
          );
          yield* sql
            .unsafe(
              `select pg_terminate_backend(pid) from pg_locks join pg_database on pg_database.oid = database
              where not granted and datname = current_database()`,
            )
            .pipe(
              Effect.repeat({
                until: (ended) => ended.length > 0,
                schedule: Schedule.spaced("10 millis"),
              }),
            );
          return yield* Fiber.join(migrating);
        }),
      );
      assert.match(error.message, /^The database cannot be used: .+\.$/);
    }).pipe(Effect.scoped),
  );

  it.live("a database of another encoding is refused", () =>
    Effect.gen(function* () {
      const database = yield* freshDatabase("encoding 'SQL_ASCII' locale 'C'");
      const error = yield* Effect.flip(Effect.provide(Effect.void, layerPostgres(database)));
      assert.include(error.message, "SQL_ASCII");
    }).pipe(Effect.scoped),
  );
});

describe("the schema can be distributed by chatbot", () => {
  it.live("every key of a table of chats holds the chatbot, and no id can pass 2^53", () =>
    Effect.gen(function* () {
      const schema = freshSchema();
      yield* Effect.provide(Effect.void, layerPostgres(optionsOf(schema)));
      const sql = yield* clientOf(schema);
      const keys = yield* sql.unsafe<{ readonly name: string; readonly has: boolean }>(
        `select c.relname as name, exists (
          select from pg_attribute a
          where a.attrelid = i.indrelid and a.attname = 'chatbot_id'
            -- What comes after is included in the index, and no part of its key.
            and a.attnum = any ((i.indkey::int2[])[0:i.indnkeyatts - 1])
        ) as has
        from pg_index i join pg_class c on c.oid = i.indexrelid join pg_class t on t.oid = i.indrelid
        where t.relnamespace = $1::regnamespace and (i.indisunique or i.indisexclusion)
          and t.relname not in ('chatbot', 'api_key', 'audit', 'fold', 'parley_migration')`,
        [schema],
      );
      assert.isAtLeast(keys.length, 7);
      assert.deepStrictEqual(
        keys.filter(({ has }) => !has),
        [],
      );
      const references = yield* sql.unsafe(
        `select conname from pg_constraint c join pg_class t on t.oid = c.conrelid
        where c.connamespace = $1::regnamespace and contype = 'f' and t.relname <> 'api_key'
          and not exists (
            select from pg_attribute a
            where a.attrelid = c.conrelid and a.attname = 'chatbot_id' and a.attnum = any (c.conkey))`,
        [schema],
      );
      assert.deepStrictEqual(references, []);
      const sequences = yield* sql.unsafe<{ readonly name: string; readonly max_value: bigint }>(
        `select sequencename as name, max_value from pg_sequences
        where schemaname = $1 and sequencename <> 'audit_id_seq' order by 1`,
        [schema],
      );
      assert.deepStrictEqual(
        sequences.map(({ name }) => name),
        ["chat_id", "chatbot_id_seq", "entry_id"],
      );
      for (const { max_value } of sequences) {
        assert.isAtMost(Number(max_value), Number.MAX_SAFE_INTEGER);
      }
    }).pipe(Effect.scoped),
  );
});
