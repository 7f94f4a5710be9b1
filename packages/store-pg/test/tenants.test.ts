import { assert, it } from "@effect/vitest";
import { defaultEntryQuery, defaultChatQuery } from "@parley/core";
import { ChatArchive, ChatNotFound, ChatStore, TurnStore } from "@parley/core/ports";
import { registerChatbot } from "@parley/core/testing";
import { migratePostgres, type PostgresOptions } from "@parley/store-pg";
import { Cause, Effect, Exit, Fiber, Layer, Redacted, Stream } from "effect";
import type { SqlClient } from "effect/sql";
import { inject } from "vitest";
import { makeChatArchive } from "../../src/archive/PgChatArchive.ts";
import { makePools, type PgPools } from "../../src/connections/PgPools.ts";
import type { DedicatedSession, Session, Statement } from "../../src/connections/Session.ts";
import { tenantTables } from "../../src/migrations/0001_initial.ts";
import { keyOf, makeStore, takeFree } from "../fixtures.ts";
import {
  bound,
  clientOf,
  freshSchema,
  layerStore,
  optionsOf,
  refusal,
} from "../PostgresUnderTest.ts";

const boundOptions = () => ({ ...optionsOf(freshSchema()), ...bound() });

const poolsOf = (options: PostgresOptions & { readonly schema: string }) =>
  makePools({ ...options, maxConnections: 7 });

const chat = { name: "Alpha", userRef: "u", helloMessage: "Hello" };
const usage = {
  provider: "p",
  model: "m",
  promptTokens: 1,
  completionTokens: 1,
  attempts: 1,
  latencyMillis: 1,
};
const entry = { question: "q", answer: "a", moderation: "none", flagged: false, usage };

/** Creates a chatbot with rows in every tenant table. */
const createFilledChatbot = Effect.gen(function* () {
  const chatbot = yield* registerChatbot;
  const [store, turns] = [yield* ChatStore, yield* TurnStore];
  for (const n of [1, 2, 3, 4]) {
    const created = yield* store.createChat(chatbot, chat, keyOf(`c${n}`));
    yield* turns.append(yield* takeFree(chatbot, created.chat.id, keyOf(`a${n}`)), entry);
    if (n === 1) {
      const which = { _tag: "Chat", id: created.chat.id } as const;
      yield* ChatArchive.use((archive) => archive.erase(chatbot, which, "test"));
    }
  }
  return chatbot;
});

/** Reads the rows of all chatbots, or of a single one, in the tenant tables. */
const contents = (sql: SqlClient.SqlClient, chatbot: number | null = null) =>
  Effect.forEach(tenantTables, (table) =>
    sql.unsafe(
      `select t::text as row from ${table} t where $1::int is null or chatbot_id = $1 order by 1`,
      [chatbot],
    ),
  );

/** Removes the condition on the chatbot from every statement. */
const withoutConditions = (pools: PgPools): PgPools => {
  const cut = (text: string) =>
    text.replace(/\b(\w+\.)?chatbot_id = (\$1|\w+\.chatbot_id)(?!\w)/g, "$$1::int is not null");
  const cutAll = (statements: ReadonlyArray<Statement>) =>
    statements.map(({ text, values }) => ({ text: cut(text), values }));
  const forgetful = (session: Session): Session => ({
    query: (tenant, text, values) => session.query(tenant, cut(text), values),
    queryAll: (tenant, statements) => session.queryAll(tenant, cutAll(statements)),
    transaction: (tenant, effect, last) =>
      session.transaction(tenant, effect, last && ((result) => cutAll(last(result)))),
  });
  const forgetfulTransfer = (session: DedicatedSession): DedicatedSession => ({
    ...forgetful(session),
    stream: (tenant, text, values) => session.stream(tenant, cut(text), values),
  });
  const { bulk, operation, reads, transfer, writes } = pools;
  return {
    ...pools,
    reads: forgetful(reads),
    writes: forgetful(writes),
    bulk: forgetful(bulk),
    operation: Effect.map(operation, forgetful),
    transfer: Effect.map(transfer, forgetfulTransfer),
  };
};

/** Two filled chatbots in one schema, with pools that are subject to row security and pools that are not. */
const twoTenants = Effect.gen(function* () {
  const options = boundOptions();
  const stores = yield* Layer.build(layerStore(options));
  const [ours, theirs] = yield* Effect.provideContext(
    Effect.all([createFilledChatbot, createFilledChatbot]),
    stores,
  );
  return {
    ours: ours!,
    theirs: theirs!,
    stores,
    sql: yield* clientOf(options.schema),
    bound: yield* poolsOf(options),
    plain: yield* poolsOf(optionsOf(options.schema)),
  };
});

it.live(
  "a server refuses to start if its role is subject to row security and the setting is off, or the reverse",
  () =>
    Effect.gen(function* () {
      const options = boundOptions();
      yield* Effect.provide(Effect.void, layerStore(options));
      const why = yield* refusal({ ...options, rowSecurity: false });
      assert.include(why, "set PARLEY_ROW_SECURITY=true");
      for (const url of [inject("roleUrls").superuser, inject("postgresUrl")]) {
        const why = yield* refusal({ ...options, url: Redacted.make(url) });
        assert.include(why, "row security does not apply to the role");
      }
      const bypassing = { ...boundOptions(), url: Redacted.make(inject("roleUrls").bypassing) };
      const { message } = yield* Effect.flip(Effect.scoped(Layer.build(layerStore(bypassing))));
      assert.include(message, "row security does not apply to the role");
    }),
);

it.live("a server refuses to start with a role that has no grants", () =>
  Effect.gen(function* () {
    const options = boundOptions();
    yield* migratePostgres(optionsOf(options.schema));
    assert.include(yield* refusal(options), "cannot use the schema");
  }),
);

for (const mode of ["with row security", "without row security"] as const) {
  const shows =
    mode === "without row security"
      ? "shows and changes other chatbots' rows"
      : "neither shows nor changes other chatbots' rows";
  /** Makes a call. With row security, it can fail only because it does not find the other chatbot's chat. */
  const attempt = Effect.fnUntraced(function* <A, E, R>(call: Effect.Effect<A, E, R>) {
    const exit = yield* Effect.exit(call);
    if (mode === "with row security" && Exit.isFailure(exit)) {
      assert.instanceOf(Cause.squash(exit.cause), ChatNotFound);
    }
    return exit;
  });
  it.live(`without conditions on the chatbot in its statements, a store ${mode} ${shows}`, () =>
    Effect.gen(function* () {
      const tenants = yield* twoTenants;
      const { ours, sql, stores, theirs } = tenants;
      const pools = withoutConditions(
        mode === "without row security" ? tenants.plain : tenants.bound,
      );
      const { turns, ...store } = yield* makeStore(pools);
      const archive = makeChatArchive(pools);
      const theirChats = (yield* Effect.provideContext(
        ChatStore.use((intact) => intact.listChats(theirs, defaultChatQuery)),
        stores,
      )).items;
      const [theirChat] = theirChats;
      const before = yield* contents(sql, theirs);
      let foreign = 0;
      const see = (ids: ReadonlyArray<number>) => {
        foreign += ids.filter((id) => theirChats.some((theirs) => theirs.id === id)).length;
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
        const exit = yield* attempt(store.listChats(ours, { ...defaultChatQuery, ...query }));
        if (Exit.isFailure(exit)) continue;
        see(exit.value.items.map(({ id }) => id));
        if (exit.value.total > 3) foreign++;
      }
      const history = yield* attempt(store.listEntries(ours, theirChat!.id, defaultEntryQuery));
      if (Exit.isSuccess(history)) see(history.value.items.map(({ chatId }) => chatId));
      const records = yield* attempt(Stream.runCollect(archive.export(ours, "test")));
      if (Exit.isSuccess(records)) {
        see(
          records.value.map((record) =>
            record._tag === "Chat" ? record.chat.id : record.entry.chatId,
          ),
        );
      }
      const usage = yield* archive.usage(ours, new Date(0));
      if (usage[0]!.answers > 3) foreign++;
      const exit = yield* attempt(turns.take(ours, theirChat!.id, null));
      if (Exit.isSuccess(exit) && exit.value._tag === "TurnTaken") {
        foreign++;
        yield* attempt(turns.append(exit.value.turn, entry));
      }
      yield* attempt(turns.take(ours, null, keyOf("a2")));
      yield* attempt(store.createChat(ours, chat, keyOf("c2")));
      for (const which of [
        { _tag: "Chat", id: theirChat!.id },
        { _tag: "UserRef", userRef: "u" },
        { _tag: "IdleSince", limit: new Date() },
        { _tag: "All" },
      ] as const) {
        yield* attempt(archive.erase(ours, which, "test"));
      }
      const isUnchanged = JSON.stringify(yield* contents(sql, theirs)) === JSON.stringify(before);
      assert.strictEqual(isUnchanged, mode !== "without row security");
      if (mode === "without row security") assert.isAbove(foreign, 10);
      else assert.strictEqual(foreign, 0);
    }).pipe(Effect.scoped),
  );
}

it.live(
  "a session with row security never mixes up tenants, over thousands of statements on its connections",
  () =>
    Effect.gen(function* () {
      const { bound } = yield* twoTenants;
      const currentChatbot = "select current_setting('parley.chatbot', true) as chatbot";
      for (const session of [bound.reads, bound.bulk]) {
        yield* Effect.forEach(
          Array.from({ length: 1_000 }, (_, n) => n),
          (n) => {
            const statement = session.query<{ readonly chatbot: string }>(n, currentChatbot);
            const work =
              n % 5 === 0
                ? session.transaction(n, Effect.andThen(Effect.yieldNow, statement))
                : n % 7 === 0
                  ? Effect.flatMap(Effect.forkChild(statement), (fiber) =>
                      Effect.andThen(Effect.yieldNow, Fiber.interrupt(fiber)),
                    )
                  : n % 11 === 0
                    ? Effect.ignore(session.query(n, "select 1 / ($1::int - $1::int)", [n]))
                    : statement;
            return Effect.map(work, (rows) => {
              if (Array.isArray(rows)) assert.strictEqual(rows[0].chatbot, String(n));
            });
          },
          { concurrency: 50 },
        );
        const unbound = yield* session.query("operator", "select from chat");
        assert.deepStrictEqual(unbound, []);
      }
    }).pipe(Effect.scoped),
);

it.live(
  "a session with row security rolls back a failing transaction, and leaves no transaction open",
  () =>
    Effect.gen(function* () {
      const { bound, ours, sql } = yield* twoTenants;
      const { writes } = bound;
      const before = yield* contents(sql);
      const rename = writes.query(ours, "update chat set name = 'x' where chatbot_id = $1", [ours]);
      const slow = Effect.timeout(writes.query(ours, "select pg_sleep(30)"), "100 millis");
      const failing: ReadonlyArray<Effect.Effect<unknown, unknown>> = [
        writes.transaction(ours, Effect.andThen(rename, writes.query(ours, "select 1 / 0"))),
        writes.transaction(ours, Effect.andThen(rename, Effect.fail("no"))),
        writes.transaction(ours, Effect.andThen(rename, Effect.die("no"))),
        writes.transaction(ours, Effect.andThen(rename, slow)),
        writes.query(ours, "update chat set name = (1 / 0)::text"),
      ];
      for (const work of failing) {
        assert.strictEqual((yield* Effect.exit(work))._tag, "Failure");
      }
      assert.deepStrictEqual(yield* contents(sql), before);
      const role = new URL(inject("roleUrls").bound).username;
      const open = yield* sql.unsafe(
        `select from pg_stat_activity where usename = $1 and state like 'idle in transaction%'
        and query_start > clock_timestamp() - interval '1 minute'`,
        [role],
      );
      assert.deepStrictEqual(open, []);
    }).pipe(Effect.scoped),
);
