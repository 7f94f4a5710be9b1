import { assert, it } from "@effect/vitest";
import { defaultEntryQuery, defaultChatQuery } from "@parley/core";
import { ChatArchive, ChatNotFound, ChatStore, TurnStore } from "@parley/core/ports";
import { registerChatbot } from "@parley/core/testing";
import { layerPostgres } from "@parley/store-pg";
import { Cause, Effect, Exit, Stream } from "effect";
import type { SqlClient } from "effect/sql";
import { makePools, type PgPools } from "../src/connections/PgPools.ts";
import type { DedicatedSession, Session, Statement } from "../src/connections/Session.ts";
import { keyOf, makeStore, takeFree, archiveOf } from "./fixtures.ts";
import { clientOf, freshSchema, optionsOf } from "./PostgresUnderTest.ts";

const tenantTables = [
  "chat",
  "entry",
  "chat_counter",
  "position_gap",
  "idempotency_key",
  "key_spending",
];

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

/** Reads a chatbot's rows. */
const contents = (sql: SqlClient.SqlClient, chatbot: number) =>
  Effect.forEach(tenantTables, (table) =>
    sql.unsafe(`select t::text as row from ${table} t where chatbot_id = $1 order by 1`, [chatbot]),
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
  const forgetfulStream = (session: DedicatedSession): DedicatedSession => ({
    ...forgetful(session),
    stream: (text, values) => session.stream(cut(text), values),
  });
  const { bulk, erasureSession, exportSession, reads, writes } = pools;
  return {
    ...pools,
    reads: forgetful(reads),
    writes: forgetful(writes),
    bulk: forgetful(bulk),
    erasureSession: Effect.map(erasureSession, forgetful),
    exportSession: Effect.map(exportSession, forgetfulStream),
  };
};

for (const isIntact of [true, false]) {
  const name = isIntact
    ? "a store neither shows nor changes another chatbot's rows"
    : "a store whose statements lack the condition on the chatbot shows and changes another chatbot's rows";
  /** Makes a call. With the conditions, it can fail only because it does not find the other chatbot's chat. */
  const attempt = Effect.fnUntraced(function* <A, E, R>(call: Effect.Effect<A, E, R>) {
    const exit = yield* Effect.exit(call);
    if (isIntact && Exit.isFailure(exit)) {
      assert.instanceOf(Cause.squash(exit.cause), ChatNotFound);
    }
    return exit;
  });
  it.live(name, () => {
    const options = optionsOf(freshSchema());
    return Effect.gen(function* () {
      const [ours, theirs] = [yield* createFilledChatbot, yield* createFilledChatbot];
      const sql = yield* clientOf(options.schema);
      const intactPools = yield* makePools({ ...options, maxConnections: 7 });
      const pools = isIntact ? intactPools : withoutConditions(intactPools);
      const { turns, ...store } = yield* makeStore(pools);
      const archive = archiveOf(pools);
      const theirChats = (yield* ChatStore.use((intact) =>
        intact.listChats(theirs, defaultChatQuery),
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
      if (isIntact) assert.deepStrictEqual([foreign, isUnchanged], [0, true]);
      else assert.isFalse(isUnchanged || foreign <= 10);
    }).pipe(Effect.provide(layerPostgres(options)), Effect.scoped);
  });
}
