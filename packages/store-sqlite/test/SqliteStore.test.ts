import { assert, it } from "@effect/vitest";
import { defaultChatQuery } from "@parley/core";
import {
  type ChatId,
  ChatArchive,
  ChatbotRegistry,
  ChatStore,
  type Erasable,
  StorageUnavailable,
  TurnStore,
} from "@parley/core/ports";
import { registerChatbot, rowsChecks } from "@parley/core/testing";
import { compactSqlite, layerSqlite, sqlite } from "@parley/store-sqlite";
import { Context, Effect, Fiber, Layer } from "effect";
import { TestClock } from "effect/testing";
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { afterAll, vi } from "vitest";
import { openDatabase } from "../src/SqliteFile.ts";
import { makeRows } from "../src/SqliteRows.ts";

const folder = mkdtempSync(join(tmpdir(), "parley-sqlite-"));
afterAll(() => rmSync(folder, { recursive: true }));
const path = (name: string) => join(folder, name);

const secret = "Zugspitzpanorama";
/** Lists the store's files that contain the secret. */
const filesWithSecret = (store: string) =>
  readdirSync(folder).filter(
    (name) => name.startsWith(store) && readFileSync(path(name)).includes(secret),
  );

/** Takes a turn. Fails if the turn is not free. */
const takeFree = Effect.fnUntraced(function* (
  ...request: Parameters<TurnStore["Service"]["take"]>
) {
  const result = yield* TurnStore.use((turns) => turns.take(...request));
  return result._tag === "TurnTaken" ? result.turn : assert.fail("the turn is free");
});

/** Returns the entry of an answer with this text in all of its fields. */
const entryOf = (text: string) => ({
  question: text,
  answer: text,
  moderation: "none",
  flagged: false,
  usage: null,
});

/** Returns why the file cannot be opened. */
const refusal = (file: string) =>
  Effect.flip(Layer.build(sqlite(file))).pipe(
    Effect.scoped,
    Effect.map((error) => {
      assert.instanceOf(error, StorageUnavailable);
      return error.message;
    }),
  );

it.effect(
  "opening an unusable file fails with its path and the reason, and leaves the file unchanged",
  () =>
    Effect.gen(function* () {
      writeFileSync(path("text"), "Not a database, but a text of a person.");
      for (const [name, statement] of [
        ["other", "CREATE TABLE chats (x)"],
        ["empty", "PRAGMA application_id = 7"],
        ["newer", "PRAGMA user_version = 99"],
      ] as const) {
        if (name === "newer") yield* Effect.scoped(Layer.build(sqlite(path(name))));
        const database = new DatabaseSync(path(name));
        database.exec(statement);
        database.close();
      }
      const contents = () =>
        ["text", "other", "empty", "newer"].map((name) => readFileSync(path(name)));
      const before = contents();
      const reasons = [
        ["text", /not a database/],
        ["other", /belongs to another application/],
        ["empty", /belongs to another application/],
        ["newer", /a later version of Parley has changed it \(tables 99, this version has \d+\)/],
        ["nowhere/store", /no such file or directory/],
      ] as const;
      for (const [name, reason] of reasons) {
        const message = yield* refusal(path(name));
        assert.match(message, reason);
        assert.include(message, path(name));
      }
      assert.deepStrictEqual(contents(), before);
    }),
);

it.effect("erasing a user's chats leaves none of the user's text in the file or its log", () =>
  Effect.gen(function* () {
    const chatbot = yield* registerChatbot;
    const turns = yield* TurnStore;
    const take = (chat: ChatId | null, name: string) =>
      takeFree(chatbot, chat, { key: `${name}\n${secret}`, fingerprint: "f" }, secret);
    const texts = { name: secret, userRef: secret, helloMessage: secret };
    const { chat } = yield* ChatStore.use((store) => store.createChat(chatbot, texts, null));
    yield* turns.append(yield* take(chat.id, "answered"), entryOf(secret));
    yield* turns.release(yield* take(null, "failed"));
    yield* take(null, "in progress");
    assert.isNotEmpty(filesWithSecret("erased"));
    const archive = yield* ChatArchive;
    const which = { _tag: "UserRef", userRef: secret } as const;
    assert.strictEqual(yield* archive.erase(chatbot, which, "test"), 1);
    assert.isEmpty(filesWithSecret("erased"));
  }).pipe(Effect.provide(layerSqlite({ file: path("erased") }))),
);

/** Returns a function that returns a pseudo-random integer below `bound`, in the same sequence in each run. */
const makeRandom = (seed: number) => (bound: number) => {
  seed = (seed * 48_271) % (2 ** 31 - 1);
  return seed % bound;
};

// Deleting a row makes SQLite move other rows. `secure_delete` does not clear the place that a moved row leaves.
it.effect("rewriting the file removes the copies that SQLite left when it moved erased rows", () =>
  Effect.gen(function* () {
    const chatbot = yield* registerChatbot;
    const store = yield* ChatStore;
    const turns = yield* TurnStore;
    const archive = yield* ChatArchive;
    const random = makeRandom(1);
    const chats: Array<{ id: ChatId; marker: string }> = [];
    for (let index = 10; index < 50; index++) {
      const marker = `<chat ${index}>`;
      const texts = { name: marker, userRef: `user ${index % 3}`, helloMessage: null };
      const { chat } = yield* store.createChat(chatbot, texts, null);
      chats.push({ id: chat.id, marker });
    }
    for (let count = 0; count < 300; count++) {
      const { id, marker } = chats[random(chats.length)]!;
      // The text repeats the marker, so that the test also finds a part of it.
      const text = marker.repeat(10 + random(60));
      yield* turns.append(yield* takeFree(chatbot, id, null), entryOf(text));
    }
    const erasedMarkers: Array<string> = [];
    const erase = Effect.fnUntraced(function* (which: Erasable, markers: ReadonlyArray<string>) {
      yield* archive.erase(chatbot, which, "test");
      erasedMarkers.push(...markers);
      yield* compactSqlite(path("moved"));
      const contents = readdirSync(folder)
        .filter((name) => name.startsWith("moved"))
        .map((name) => readFileSync(path(name), "latin1"));
      const isLeft = (marker: string) => contents.some((content) => content.includes(marker));
      assert.deepStrictEqual(erasedMarkers.filter(isLeft), []);
    });
    for (const { id, marker } of chats.slice(0, 20)) yield* erase({ _tag: "Chat", id }, [marker]);
    for (const rest of [0, 1, 2]) {
      const markers = chats
        .filter((_, index) => (index + 10) % 3 === rest)
        .map(({ marker }) => marker);
      yield* erase({ _tag: "UserRef", userRef: `user ${rest}` }, markers);
    }
  }).pipe(Effect.provide(layerSqlite({ file: path("moved") }))),
);

it.effect("deleting a chatbot leaves none of its text in the file or its log", () =>
  Effect.gen(function* () {
    const chatbot = yield* registerChatbot;
    const texts = { name: secret, userRef: secret, helloMessage: secret };
    yield* ChatStore.use((store) => store.createChat(chatbot, texts, null));
    assert.isNotEmpty(filesWithSecret("deleted"));
    yield* ChatbotRegistry.use((registry) => registry.delete(chatbot, "test"));
    assert.isEmpty(filesWithSecret("deleted"));
  }).pipe(Effect.provide(layerSqlite({ file: path("deleted") }))),
);

it.effect("the error on a Node without SQLite names the version that is needed", () =>
  Effect.gen(function* () {
    const { getBuiltinModule } = process;
    vi.spyOn(process, "getBuiltinModule").mockImplementation(((name: string) =>
      name === "node:sqlite" ? undefined : getBuiltinModule(name)) as never);
    yield* Effect.addFinalizer(() => Effect.sync(() => vi.restoreAllMocks()));
    assert.match(yield* refusal(path("store")), /needs Node 22\.13 or later; this is v\d/);
  }),
);

it.effect(
  "opening a store waits up to five seconds for another process to unlock the file, without blocking its own",
  () =>
    Effect.gen(function* () {
      yield* Effect.scoped(Layer.build(sqlite(path("locked"))));
      const other = new DatabaseSync(path("locked"));
      other.exec("BEGIN IMMEDIATE");
      const start = yield* Effect.forkChild(refusal(path("locked")));
      yield* TestClock.adjust("6 seconds");
      assert.match(yield* Fiber.join(start), /database is locked/);
      const later = yield* Effect.forkChild(Effect.scoped(Layer.build(sqlite(path("locked")))));
      yield* TestClock.adjust("4 seconds");
      other.close();
      yield* TestClock.adjust("1 second");
      yield* Fiber.join(later);
    }),
);

it.effect("a call that only reads does not wait for another process that is writing", () =>
  Effect.gen(function* () {
    const chatbot = yield* registerChatbot;
    const other = new DatabaseSync(path("written"));
    other.exec("BEGIN IMMEDIATE");
    const { tokens } = yield* TurnStore.use((turns) => turns.spending(chatbot, "key"));
    const chats = yield* ChatStore.use((store) => store.listChats(chatbot, defaultChatQuery));
    assert.deepStrictEqual([tokens, chats.total], [0, 0]);
    other.close();
  }).pipe(Effect.provide(layerSqlite({ file: path("written") }))),
);

it.effect("what a key spent on earlier days is deleted when it spends again", () =>
  Effect.gen(function* () {
    const chatbot = yield* registerChatbot;
    const { release } = yield* TurnStore;
    const spend = Effect.flatMap(takeFree(chatbot, null, null), (turn) =>
      release(turn, { apiKeyId: "k", tokens: 7 }),
    );
    yield* spend;
    yield* TestClock.adjust("1 day");
    yield* Effect.all([spend, spend]);
    const database = new DatabaseSync(path("spent"));
    const rows = database.prepare("SELECT day, tokens FROM spending").all();
    database.close();
    assert.deepStrictEqual(
      rows.map((row) => ({ ...row })),
      [{ day: 1, tokens: 14 }],
    );
  }).pipe(Effect.provide(layerSqlite({ file: path("spent") }))),
);

it.effect("a call to a closed store fails with StorageUnavailable", () =>
  Effect.gen(function* () {
    const registry = yield* Effect.scoped(
      Effect.map(Layer.build(layerSqlite({ file: path("closed") })), Context.get(ChatbotRegistry)),
    );
    assert.instanceOf(yield* Effect.flip(registry.list), StorageUnavailable);
  }),
);

it.effect(
  "transactions are all or nothing, imports are complete, and old keys go, in the file",
  () =>
    Effect.gen(function* () {
      const { rows } = makeRows(yield* openDatabase(path("rows")));
      for (const { run } of rowsChecks(rows)) yield* run;
    }).pipe(Effect.scoped),
);
