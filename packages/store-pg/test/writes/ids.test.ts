import { assert, it } from "@effect/vitest";
import { defaultSettings, defaultChatQuery } from "@parley/core";
import {
  type ChatId,
  type ChatbotId,
  ChatArchive,
  ChatbotRegistry,
  ChatStore,
  TurnStore,
} from "@parley/core/ports";
import { registerChatbot } from "@parley/core/testing";
import { inspectPostgres, layerPostgres, type PostgresOptions } from "@parley/store-pg";
import { Effect, Layer, Logger, Stream } from "effect";
import { bare, entry, takeFree } from "../fixtures.ts";
import {
  clientOf,
  freshDatabase,
  freshSchema,
  inDatabase,
  layerStore,
  optionsOf,
  granted,
} from "../PostgresUnderTest.ts";

const create = Effect.fnUntraced(function* (
  chatbot: ChatbotId,
  helloMessage: string | null = null,
) {
  const { createChat } = yield* ChatStore;
  return (yield* createChat(chatbot, { ...bare, helloMessage }, null)).chat.id;
});

const append = Effect.fnUntraced(function* (chatbot: ChatbotId, chat: ChatId | null) {
  const turn = yield* takeFree(chatbot, chat);
  return yield* TurnStore.use((turns) => turns.append(turn, entry));
});

const ask = (chatbot: ChatbotId): Effect.Effect<number, unknown, ChatStore | TurnStore> =>
  Effect.map(append(chatbot, null), ({ chatId }) => chatId);

/** Runs work on the store, and returns the work's result and the logged warnings. */
const serve = <A, E>(
  options: PostgresOptions,
  work: Effect.Effect<A, E, ChatStore | TurnStore | ChatArchive | ChatbotRegistry>,
) =>
  Effect.suspend(() => {
    const warnings: Array<string> = [];
    const logger = Logger.make(({ logLevel, message }) => {
      if (logLevel === "Warn") warnings.push(String(message));
    });
    return Effect.map(
      work.pipe(Effect.provide(layerPostgres(options)), Effect.provide(Logger.layer([logger]))),
      (result) => ({ result, warnings }),
    );
  });

/** Creates a chatbot with three chats, one of which has an entry. */
const fill = Effect.gen(function* () {
  const chatbot = yield* registerChatbot;
  const ids = yield* Effect.replicateEffect(create(chatbot), 3);
  const { id } = yield* append(chatbot, ids[0]!);
  return { chatbot, chats: ids, entry: id };
});

const idStep = 100_000;

/** Rewrites the row in another transaction, as copying all of the schema's rows would. */
const copyRows = "update database_identity set identity = identity";

it.live("ids continue without gaps across restarts on a database that was not restored", () =>
  Effect.gen(function* () {
    const { url } = yield* freshDatabase();
    const { result: chatbot, warnings } = yield* serve({ url }, registerChatbot);
    assert.deepStrictEqual(warnings, []);
    for (const expected of [1, 2, 3]) {
      const { result, warnings } = yield* serve({ url }, create(chatbot));
      assert.deepStrictEqual([result, warnings], [expected, []]);
    }
    assert.deepStrictEqual((yield* inspectPostgres({ url })).warnings, []);
  }).pipe(Effect.scoped),
);

it.live("a copy of a database issues no id that the original may have issued since", () =>
  Effect.gen(function* () {
    const original = yield* freshDatabase();
    const { result: before } = yield* serve({ url: original.url }, fill);
    const copy = freshSchema();
    const admin = yield* clientOf("public", 1);
    yield* admin.unsafe(`create database ${copy} template ${original.name}`);
    yield* Effect.addFinalizer(() =>
      Effect.orDie(admin.unsafe(`drop database ${copy} with (force)`)),
    );
    const options = { url: inDatabase(copy, original.url) };
    const [warning] = (yield* inspectPostgres(options)).warnings;
    assert.include(warning, "restored");
    const next = Effect.gen(function* () {
      const chat = yield* create(before.chatbot, "Hello");
      const { id } = yield* append(before.chatbot, null);
      return { chat, entry: id, chatbot: yield* registerChatbot };
    });
    const { result: since } = yield* serve({ url: original.url }, next);
    const { result, warnings } = yield* serve(options, next);
    assert.deepStrictEqual(warnings, [warning!]);
    for (const kind of ["chat", "entry", "chatbot"] as const) {
      assert.isAbove(result[kind], since[kind]);
    }
    assert.isAbove(result.chat, Math.max(...before.chats) + idStep);
    assert.isAbove(result.entry, before.entry + idStep);
    assert.isAbove(result.chatbot, before.chatbot + idStep);
    const { result: again, warnings: others } = yield* serve(options, next);
    assert.deepStrictEqual([again.chat, others], [result.chat + 2, []]);
    assert.deepStrictEqual((yield* inspectPostgres(options)).warnings, []);
  }).pipe(Effect.scoped),
);

it.live(
  "the sequences are moved only once if the rows are replaced while several servers run, even by a role that does not own them",
  () =>
    Effect.gen(function* () {
      const options = { ...optionsOf(freshSchema()), ...granted() };
      const sql = yield* clientOf(options.schema);
      yield* Layer.build(layerStore(options));
      const servers = yield* Effect.replicateEffect(
        Layer.build(Layer.fresh(layerPostgres(options))),
        2,
      );
      const { chatbot, chats } = yield* Effect.provideContext(fill, servers[0]!);
      yield* sql.unsafe(copyRows);
      const ids = yield* Effect.forEach(
        Array.from({ length: 40 }, (_, n) => servers[n % 2]!),
        (server, n) => Effect.provideContext(n % 4 < 2 ? create(chatbot) : ask(chatbot), server),
        { concurrency: 40 },
      );
      const last = Math.max(...chats);
      assert.isAbove(Math.min(...ids), last + idStep);
      assert.isBelow(Math.max(...ids), last + 2 * idStep);
      assert.strictEqual(new Set(ids).size, ids.length);
    }).pipe(Effect.scoped),
);

it.live(
  "sequences that lag behind the rows are moved by the first write of each kind, and when a server starts",
  () =>
    Effect.gen(function* () {
      const { sql, url } = yield* freshDatabase();
      const reset = Effect.forEach(
        ["chat_id", "entry_id", "chatbot_id_seq", "audit_id_seq"],
        (sequence) => sql.unsafe(`select setval('parley.${sequence}', 1, false)`),
      );
      const writeEach = Effect.gen(function* () {
        const { chatbot, chats } = yield* fill;
        const registry = yield* ChatbotRegistry;
        const writes: Record<string, Effect.Effect<unknown, unknown, ChatStore | TurnStore>> = {
          "a chat": create(chatbot, "Hello"),
          "an entry": append(chatbot, chats[0]!),
          "a new chat's entry": append(chatbot, null),
          "a chatbot": registry.create(
            { workspaceName: "W", name: "N", description: "", settings: defaultSettings, keys: [] },
            "test",
          ),
          "an entry of the audit log": registry.change(chatbot, { description: "changed" }, "test"),
        };
        for (const [name, write] of Object.entries(writes)) {
          yield* reset;
          assert.isTrue(yield* Effect.isSuccess(write), name);
        }
        const { items } = yield* ChatStore.use((store) =>
          store.listChats(chatbot, defaultChatQuery),
        );
        const ids = items.map(({ id }) => id);
        assert.deepStrictEqual(
          ids,
          ids.toSorted((a, b) => b - a),
        );
      });
      const { warnings } = yield* serve({ url }, writeEach);
      assert.lengthOf(warnings, 5);
      yield* reset;
      assert.include((yield* inspectPostgres({ url })).warnings[0], "at least 100,000 higher");
      const started = yield* serve({ url }, Effect.void);
      assert.lengthOf(started.warnings, 1);
    }).pipe(Effect.scoped),
);

it.live(
  "an import into a restored database first moves the sequences, and keeps the imported ids",
  () =>
    Effect.gen(function* () {
      const { sql, url } = yield* freshDatabase();
      const options = { url, advanceSequences: false };
      const { result: before } = yield* serve({ url }, fill);
      yield* sql.unsafe(copyRows);
      const work = Effect.gen(function* () {
        const archive = yield* ChatArchive;
        const records = yield* Stream.runCollect(archive.export(before.chatbot, "test"));
        const chatbot = yield* registerChatbot;
        yield* archive.import(chatbot, Stream.fromIterable(records), "test");
        const { items } = yield* ChatStore.use((store) =>
          store.listChats(chatbot, defaultChatQuery),
        );
        assert.deepStrictEqual(items.map(({ id }) => id).toReversed(), before.chats);
        return yield* create(chatbot);
      });
      const { result } = yield* serve(options, work);
      assert.isAbove(result, Math.max(...before.chats) + idStep);
    }).pipe(Effect.scoped),
);
