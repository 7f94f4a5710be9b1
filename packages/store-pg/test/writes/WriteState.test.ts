import { assert, it } from "@effect/vitest";
import { defaultChatQuery, defaultEntryQuery } from "@parley/core";
import { ChatbotId, ChatStore, StoreState, TurnStore } from "@parley/core/ports";
import { registerChatbot } from "@parley/core/testing";
import { inspectPostgres, layerPostgres } from "@parley/store-pg";
import { Effect, Logger, Redacted } from "effect";
import { inject } from "vitest";
import { bare, entry, keyOf, takeFree } from "../fixtures.ts";
import { clientOf, freshDatabase, inDatabase, start } from "../PostgresUnderTest.ts";

/** Runs work that can read the messages that it logs. */
const logging = Effect.fnUntraced(function* <A, E, R>(
  work: (lines: ReadonlyArray<string>) => Effect.Effect<A, E, R>,
) {
  const lines: Array<string> = [];
  const logger = Logger.make(({ message }) => void lines.push(String(message)));
  return yield* Effect.provide(work(lines), Logger.layer([logger]));
});

/** A new database, with its address for the tables' owner, and a client for a superuser. */
const database = Effect.gen(function* () {
  const { name, url } = yield* freshDatabase();
  const superuser = inDatabase(name, Redacted.make(inject("roleUrls").superuser));
  const sql = yield* clientOf("parley", 2, superuser);
  return {
    name,
    url,
    sql,
    /** Affects only sessions that are opened later, so this client can still write. */
    setReadOnly: (isReadOnly: boolean) =>
      sql.unsafe(
        `alter database ${name} ${isReadOnly ? "set default_transaction_read_only = on" : "reset all"}`,
      ),
    disconnect: sql.unsafe(
      "select pg_terminate_backend(pid) from pg_stat_activity where datname = $1 and application_name = 'parley'",
      [name],
    ),
  };
});

const services = Effect.gen(function* () {
  const chats = yield* ChatStore;
  const turns = yield* TurnStore;
  const { readOnlyReason } = yield* StoreState;
  const chatbot = yield* registerChatbot;
  const { chat } = yield* chats.createChat(chatbot, bare, null);
  return {
    chatbot,
    chats,
    readOnlyReason,
    create: chats.createChat(chatbot, bare, null),
    takes: {
      "of a new chat": turns.take(chatbot, null, null),
      "of a chat": turns.take(chatbot, chat.id, null),
      "with a key": turns.take(chatbot, null, keyOf("k")),
    },
    ask: Effect.flatMap(takeFree(chatbot, null), (turn) => turns.append(turn, entry)),
  };
});

/** Waits at most five seconds for the store to accept writes, without writing. */
const becomesWritable = (readOnlyReason: Effect.Effect<string | null>) =>
  readOnlyReason.pipe(
    Effect.delay("50 millis"),
    Effect.repeat({ until: (reason) => reason === null }),
    Effect.timeout("5 seconds"),
  );

it.live(
  "a store whose database becomes read-only refuses asks before they are answered, serves reads, and recovers by itself",
  () =>
    logging((lines) =>
      Effect.gen(function* () {
        const { disconnect, setReadOnly, url } = yield* database;
        yield* Effect.gen(function* () {
          const { ask, chatbot, chats, create, readOnlyReason, takes } = yield* services;
          assert.isNull(yield* readOnlyReason);
          yield* setReadOnly(true);
          yield* disconnect;
          yield* Effect.ignore(chats.listChats(chatbot, defaultChatQuery));
          assert.strictEqual(yield* readOnlyReason, "its transactions are read-only by default");
          for (const [which, take] of Object.entries(takes)) {
            // PostgreSQL's own message would show that a statement was sent.
            const error = yield* Effect.flip(take);
            assert.include(error.message, "The database refuses writes: ", which);
            assert.deepInclude(error, { reason: "read_only" }, which);
          }
          assert.strictEqual((yield* Effect.flip(create))._tag, "StorageUnavailable");
          assert.strictEqual((yield* chats.listChats(chatbot, defaultChatQuery)).total, 1);
          assert.deepStrictEqual((yield* inspectPostgres({ url })).warnings, [
            "The database refuses writes: its transactions are read-only by default.",
          ]);
          yield* setReadOnly(false);
          // Connections that were opened in the meantime stay read-only until they are closed.
          yield* becomesWritable(readOnlyReason);
          yield* Effect.all([create, ask, create]);
        }).pipe(Effect.provide(layerPostgres({ url })));
        assert.deepStrictEqual(
          lines.filter((line) => line.includes("writes")),
          [
            "The database refuses writes: its transactions are read-only by default.",
            "The database accepts writes again",
          ],
        );
      }).pipe(Effect.scoped),
    ),
);

it.live(
  "an answer completed while the database is read-only is stored once the database accepts writes again",
  () =>
    Effect.gen(function* () {
      const { disconnect, setReadOnly, url } = yield* database;
      yield* Effect.gen(function* () {
        const turns = yield* TurnStore;
        const { chatbot, chats, create } = yield* services;
        const { chat } = yield* create;
        const turn = yield* takeFree(chatbot, chat.id);
        yield* setReadOnly(true);
        yield* disconnect;
        yield* Effect.repeat(Effect.ignore(create), { times: 2 });
        const append = turns.append(turn, entry);
        yield* Effect.all([append, Effect.delay(setReadOnly(false), "1 second")], {
          concurrency: 2,
        });
        const { total } = yield* chats.listEntries(chatbot, chat.id, {
          ...defaultEntryQuery,
          orderBy: [{ field: "id", descending: true }],
        });
        assert.strictEqual(total, 1);
      }).pipe(Effect.provide(layerPostgres({ url })));
    }).pipe(Effect.scoped),
);

it.live("a server that starts on a read-only database logs one warning, and serves reads", () =>
  logging((lines) =>
    Effect.gen(function* () {
      const { setReadOnly, url } = yield* database;
      yield* start({ url });
      yield* setReadOnly(true);
      yield* Effect.gen(function* () {
        const { readOnlyReason } = yield* StoreState;
        const chats = yield* ChatStore;
        assert.isNotNull(yield* readOnlyReason);
        assert.strictEqual((yield* chats.listChats(ChatbotId.make(1), defaultChatQuery)).total, 0);
        yield* setReadOnly(false);
        yield* becomesWritable(readOnlyReason);
      }).pipe(Effect.provide(layerPostgres({ url })));
      assert.deepStrictEqual(lines, [
        "The database refuses writes: its transactions are read-only by default.",
        "The database accepts writes again",
      ]);
    }).pipe(Effect.scoped),
  ),
);

it.live("a store whose role lacks a privilege is read-only, and says what it cannot access", () =>
  Effect.gen(function* () {
    const { name, sql, url } = yield* database;
    const chatbot = yield* Effect.provide(registerChatbot, layerPostgres({ url }));
    yield* sql.unsafe("grant usage on schema parley to parley_server");
    yield* sql.unsafe("grant all on all tables in schema parley to parley_server");
    yield* sql.unsafe("grant all on all sequences in schema parley to parley_server");
    yield* sql.unsafe("revoke insert on parley.entry from parley_server");
    const server = { url: inDatabase(name, Redacted.make(inject("roleUrls").server)) };
    yield* Effect.gen(function* () {
      const { readOnlyReason } = yield* StoreState;
      const create = ChatStore.use((chats) => chats.createChat(chatbot, bare, null));
      assert.strictEqual(yield* readOnlyReason, "permission denied for table entry");
      assert.include((yield* Effect.flip(create)).message, "The database refuses writes: ");
      yield* sql.unsafe("grant insert on parley.entry to parley_server");
      yield* becomesWritable(readOnlyReason);
      yield* create;
      yield* sql.unsafe("revoke all on sequence parley.entry_id from parley_server");
      assert.strictEqual(yield* readOnlyReason, "permission denied for sequences");
      assert.include((yield* Effect.flip(create)).message, "The database refuses writes: ");
      yield* sql.unsafe("grant usage on sequence parley.entry_id to parley_server");
      yield* becomesWritable(readOnlyReason);
    }).pipe(Effect.provide(layerPostgres(server)));
    // As after an upgrade that adds a table without granting the role access to it.
    yield* sql.unsafe("revoke all on parley.key_spending from parley_server");
    const reason = StoreState.use(({ readOnlyReason }) => readOnlyReason);
    assert.strictEqual(
      yield* Effect.provide(reason, layerPostgres(server)),
      "permission denied for table key_spending",
    );
  }).pipe(Effect.scoped),
);

/** Returns SQL that makes each insertion of a row that meets the condition fail with the SQLSTATE. */
const failing = (table: string, condition: string, code: string) => [
  `create or replace function fail() returns trigger language plpgsql as $$ begin
    if ${condition} then raise exception 'could not extend file' using errcode = '${code}'; end if; return new; end $$`,
  `create trigger fail before insert on parley.${table} for each row execute function fail()`,
];

it.live("after the disk has filled up, writes are refused until a large row fits again", () =>
  Effect.gen(function* () {
    const { sql, url } = yield* database;
    yield* Effect.gen(function* () {
      const { create, readOnlyReason, takes } = yield* services;
      for (const statement of failing("entry", "true", "53100")) yield* sql.unsafe(statement);
      yield* sql.unsafe(
        "create trigger fail before insert on parley.chat for each row execute function fail()",
      );
      assert.strictEqual((yield* Effect.flip(create))._tag, "StorageUnavailable");
      yield* sql.unsafe("drop trigger fail on parley.chat");
      yield* Effect.sleep("1500 millis");
      assert.strictEqual(yield* readOnlyReason, "could not extend file");
      const error = yield* Effect.flip(takes["of a new chat"]);
      assert.deepInclude(error, { reason: "disk_full" });
      yield* sql.unsafe("drop trigger fail on parley.entry");
      yield* becomesWritable(readOnlyReason);
      yield* create;
      const [row] = yield* sql.unsafe("select count(*)::int4 as rows from parley.entry");
      assert.deepStrictEqual(row, { rows: 0 });
    }).pipe(Effect.provide(layerPostgres({ url })));
  }).pipe(Effect.scoped),
);

it.live("a rejected row in one chatbot does not block another chatbot's writes", () =>
  Effect.gen(function* () {
    const { sql, url } = yield* database;
    yield* Effect.gen(function* () {
      const { chatbot, chats, create, readOnlyReason } = yield* services;
      for (const statement of failing("chat", `new.chatbot_id = ${chatbot}`, "42501")) {
        yield* sql.unsafe(statement);
      }
      const other = yield* registerChatbot;
      for (let n = 0; n < 5; n++) {
        assert.strictEqual((yield* Effect.flip(create))._tag, "StorageUnavailable");
        yield* chats.createChat(other, bare, null);
        assert.isNull(yield* readOnlyReason);
      }
    }).pipe(Effect.provide(layerPostgres({ url })));
  }).pipe(Effect.scoped),
);
