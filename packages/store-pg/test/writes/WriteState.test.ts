import { assert, it } from "@effect/vitest";
import { defaultChatQuery, defaultEntryQuery } from "@parley/core";
import {
  ChatbotId,
  ChatStore,
  StoreState,
  TurnStore,
  type Chat,
  type ChatId,
  type StorePorts,
} from "@parley/core/ports";
import { registerChatbot } from "@parley/core/testing";
import { inspectPostgres, layerPostgres } from "@parley/store-pg";
import { Effect, Layer, Logger, Redacted } from "effect";
import { inject } from "vitest";
import { bare, entry, keyOf, takeFree } from "../fixtures.ts";
import { freshDatabase, inDatabase, start, superuserIn } from "../PostgresUnderTest.ts";

/** A new database, with its address for the tables' owner, and a client for a superuser. */
const database = Effect.gen(function* () {
  const { disconnect, name, url } = yield* freshDatabase();
  const sql = yield* superuserIn(name, 2);
  /** Affects only sessions that are opened later, so the client can still write. */
  const setReadOnly = (isReadOnly: boolean) =>
    sql.unsafe(
      `alter database ${name} ${isReadOnly ? "set default_transaction_read_only = on" : "reset all"}`,
    );
  const lines: Array<string> = [];
  const logger = Logger.make(({ message }) => void lines.push(String(message)));
  /** The store, which logs into `lines`. */
  const store = Layer.provideMerge(layerPostgres({ url }), Logger.layer([logger]));
  return { name, url, sql, setReadOnly, disconnect, store, lines };
});

/** Runs a test on the store in a new database. */
const onStore = Effect.fnUntraced(function* <E, R>(
  test: (up: Up) => Effect.Effect<unknown, E, R | StorePorts>,
) {
  const up = yield* database;
  yield* Effect.gen(function* () {
    const [chats, turns] = [yield* ChatStore, yield* TurnStore];
    const { readOnlyReason } = yield* StoreState;
    const chatbot = yield* registerChatbot;
    const create = Effect.map(chats.createChat(chatbot, bare, null), ({ chat }) => chat);
    const { id } = yield* create;
    yield* test({ ...up, chatbot, chats, turns, readOnlyReason, create, chatId: id });
  }).pipe(Effect.provide(up.store));
}, Effect.scoped);

interface Up extends Effect.Success<typeof database> {
  readonly chatbot: ChatbotId;
  readonly chats: ChatStore["Service"];
  readonly turns: TurnStore["Service"];
  readonly readOnlyReason: Effect.Effect<string | null>;
  readonly create: Effect.Effect<Chat, { readonly _tag: string; readonly message: string }>;
  /** A chat that exists. */
  readonly chatId: ChatId;
}

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
    onStore(
      Effect.fnUntraced(function* ({ chatbot, chatId, chats, create, turns, ...up }) {
        const refusal = "The database refuses writes: its transactions are read-only by default.";
        assert.isNull(yield* up.readOnlyReason);
        yield* up.setReadOnly(true);
        yield* up.disconnect;
        yield* Effect.ignore(chats.listChats(chatbot, defaultChatQuery));
        assert.strictEqual(yield* up.readOnlyReason, "its transactions are read-only by default");
        for (const [chat, key] of [
          [null, null],
          [chatId, null],
          [null, keyOf("k")],
        ] as const) {
          // PostgreSQL's own message would show that a statement was sent.
          const error = yield* Effect.flip(turns.take(chatbot, chat, key));
          assert.include(error.message, "The database refuses writes: ");
          assert.deepInclude(error, { reason: "read_only" });
        }
        assert.strictEqual((yield* Effect.flip(create))._tag, "StorageUnavailable");
        assert.strictEqual((yield* chats.listChats(chatbot, defaultChatQuery)).total, 1);
        assert.deepStrictEqual((yield* inspectPostgres({ url: up.url })).warnings, [refusal]);
        yield* up.setReadOnly(false);
        // Connections that were opened in the meantime stay read-only until they are closed.
        yield* becomesWritable(up.readOnlyReason);
        const ask = Effect.flatMap(takeFree(chatbot, null), (turn) => turns.append(turn, entry));
        yield* Effect.all([create, ask, create]);
        assert.deepStrictEqual(
          up.lines.filter((line) => line.includes("writes")),
          [refusal, "The database accepts writes again"],
        );
      }),
    ),
);

it.live(
  "an answer completed while the database is read-only is stored once the database accepts writes again",
  () =>
    onStore(
      Effect.fnUntraced(function* ({ chatbot, chatId, chats, create, turns, ...up }) {
        const turn = yield* takeFree(chatbot, chatId);
        yield* up.setReadOnly(true);
        yield* up.disconnect;
        yield* Effect.repeat(Effect.ignore(create), { times: 2 });
        const append = turns.append(turn, entry);
        yield* Effect.all([append, Effect.delay(up.setReadOnly(false), "1 second")], {
          concurrency: 2,
        });
        assert.strictEqual((yield* chats.listEntries(chatbot, chatId, defaultEntryQuery)).total, 1);
      }),
    ),
);

it.live("a server that starts on a read-only database logs one warning, and serves reads", () =>
  Effect.gen(function* () {
    const { lines, setReadOnly, store, url } = yield* database;
    yield* start({ url });
    yield* setReadOnly(true);
    yield* Effect.gen(function* () {
      const { readOnlyReason } = yield* StoreState;
      const chats = yield* ChatStore;
      assert.isNotNull(yield* readOnlyReason);
      assert.strictEqual((yield* chats.listChats(ChatbotId.make(1), defaultChatQuery)).total, 0);
      yield* setReadOnly(false);
      yield* becomesWritable(readOnlyReason);
    }).pipe(Effect.provide(store));
    assert.deepStrictEqual(lines, [
      "The database refuses writes: its transactions are read-only by default.",
      "The database accepts writes again",
    ]);
  }).pipe(Effect.scoped),
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
  onStore(
    Effect.fnUntraced(function* ({ chatbot, create, readOnlyReason, sql, turns }) {
      for (const statement of failing("entry", "true", "53100")) yield* sql.unsafe(statement);
      yield* sql.unsafe(
        "create trigger fail before insert on parley.chat for each row execute function fail()",
      );
      assert.strictEqual((yield* Effect.flip(create))._tag, "StorageUnavailable");
      yield* sql.unsafe("drop trigger fail on parley.chat");
      yield* Effect.sleep("1500 millis");
      assert.strictEqual(yield* readOnlyReason, "could not extend file");
      const error = yield* Effect.flip(turns.take(chatbot, null, null));
      assert.deepInclude(error, { reason: "disk_full" });
      yield* sql.unsafe("drop trigger fail on parley.entry");
      yield* becomesWritable(readOnlyReason);
      yield* create;
      const [row] = yield* sql.unsafe("select count(*)::int4 as rows from parley.entry");
      assert.deepStrictEqual(row, { rows: 0 });
    }),
  ),
);

it.live("a rejected row in one chatbot does not block another chatbot's writes", () =>
  onStore(
    Effect.fnUntraced(function* ({ chatbot, chats, create, readOnlyReason, sql }) {
      for (const statement of failing("chat", `new.chatbot_id = ${chatbot}`, "42501")) {
        yield* sql.unsafe(statement);
      }
      const other = yield* registerChatbot;
      for (let n = 0; n < 5; n++) {
        assert.strictEqual((yield* Effect.flip(create))._tag, "StorageUnavailable");
        yield* chats.createChat(other, bare, null);
        assert.isNull(yield* readOnlyReason);
      }
    }),
  ),
);
