/**
 * What becomes of the file: it is copied, lost, locked or from another version.
 */
import { assert, it } from "@effect/vitest";
import { ChatArchive, ChatStore, StorageUnavailable, StoreState } from "@parley/core/ports";
import { registerChatbot } from "@parley/core/testing";
import { backupSqlite, layerSqlite } from "@parley/store-sqlite";
import { Duration, Effect, Layer, Stream } from "effect";
import {
  copyFileSync,
  existsSync,
  mkdtempSync,
  renameSync,
  rmSync,
  statSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { afterAll } from "vitest";
import { openDatabase } from "../src/SqliteFile.ts";
import { makeRows } from "../src/SqliteRows.ts";

const folder = mkdtempSync(join(tmpdir(), "parley-file-"));
afterAll(() => rmSync(folder, { recursive: true }));
const path = (name: string) => join(folder, name);

const chatbot = 1 as never;
const fields = { name: null, userRef: null, helloMessage: "Hello" };
/** Creates a chat, and returns its id. */
const create = ChatStore.use((store) => store.createChat(chatbot, fields, null)).pipe(
  Effect.map(({ chat }) => Number(chat.id)),
);
const readOnlyReason = Effect.flatMap(StoreState, (state) => state.readOnlyReason);
const on = <A, E, R>(name: string, work: Effect.Effect<A, E, R>) =>
  Effect.provide(work, layerSqlite({ file: path(name) }), { local: true });

it.effect("a backup is complete, and never gives an id of the original again", () =>
  Effect.gen(function* () {
    const backup = backupSqlite(path("original"), path("backup"));
    yield* on(
      "original",
      Effect.gen(function* () {
        yield* registerChatbot;
        assert.strictEqual(yield* create, 1);
        yield* backup;
        assert.strictEqual(yield* create, 2);
      }),
    );
    assert.strictEqual(statSync(path("backup")).mode & 0o777, 0o600);
    assert.match((yield* Effect.flip(backup)).message, /backup.* already exists/);
    for (const id of [100_002, 100_003]) assert.strictEqual(yield* on("backup", create), id);
    // Restored over the original, whose place in the file system it takes.
    rmSync(path("backup"));
    yield* backup;
    copyFileSync(path("backup"), path("original"));
    // Left by a server that was killed.
    writeFileSync(path("original-wal"), "log");
    const refusal = yield* Effect.flip(on("original", create));
    assert.match(refusal.message, /restored backup, delete .*original-wal/);
    rmSync(path("original-wal"));
    assert.strictEqual(yield* on("original", create), 100_003);
  }),
);

it.effect("a file that was copied by hand gives higher ids, and the original goes on", () =>
  Effect.gen(function* () {
    yield* on("first", Effect.andThen(registerChatbot, create));
    copyFileSync(path("first"), path("copied"));
    assert.strictEqual(yield* on("copied", create), 100_002);
    assert.strictEqual(yield* on("first", create), 2);
    // The same file under another name is no copy.
    renameSync(path("first"), path("renamed"));
    assert.strictEqual(yield* on("renamed", create), 3);
  }),
);

for (const [what, change] of [
  ["was removed", (file: string) => rmSync(file)],
  ["was replaced", (file: string) => (renameSync(file, `${file}.old`), writeFileSync(file, ""))],
  ["lost its write-ahead log", (file: string) => rmSync(`${file}-wal`)],
] as const)
  it.effect(`writes to a file that ${what} are never acknowledged`, () =>
    Effect.gen(function* () {
      const name = what.replaceAll(" ", "");
      yield* on(
        name,
        Effect.gen(function* () {
          yield* registerChatbot;
          yield* create;
          assert.isNull(yield* readOnlyReason);
          change(path(name));
          assert.instanceOf(yield* Effect.flip(create), StorageUnavailable);
          assert.match((yield* readOnlyReason)!, /removed or replaced.*restart the server/);
          const read = ChatArchive.use((archive) => archive.usage(chatbot, { since: new Date(0) }));
          assert.instanceOf(yield* Effect.flip(read), StorageUnavailable);
        }),
      );
      if (what === "was removed") assert.isFalse(existsSync(path(name)));
    }),
  );

it.effect(
  "a missing file whose write-ahead log is still there is not replaced by an empty one",
  () =>
    Effect.gen(function* () {
      writeFileSync(path("lost-wal"), "");
      const error = yield* Effect.flip(on("lost", create));
      assert.match(error.message, /lost-wal, which belongs to it, is not/);
      assert.isFalse(existsSync(path("lost")));
    }),
);

it.live(
  "while another program keeps the file locked, writes fail after five seconds, then at once; the store then recovers by itself",
  () =>
    on(
      "locked",
      Effect.gen(function* () {
        yield* registerChatbot;
        const other = new DatabaseSync(path("locked"));
        other.exec("BEGIN IMMEDIATE");
        const timed = Effect.timed(Effect.flip(create));
        const millis = Effect.map(timed, ([duration, error]) => {
          assert.match(error.message, /locked" cannot be used: another process has kept it locked/);
          assert.deepInclude(error as object, { reason: "timeout" });
          return Duration.toMillis(duration);
        });
        assert.isAbove(yield* millis, 4_900);
        assert.isBelow(yield* millis, 4_000);
        assert.match((yield* readOnlyReason)!, /locked/);
        other.close();
        yield* Effect.sleep("1200 millis");
        assert.isNull(yield* readOnlyReason);
        yield* create;
      }),
    ),
);

it.live("retention rewrites a small file once a day, if something was erased", () =>
  Effect.gen(function* () {
    yield* on("rewritten", Effect.andThen(registerChatbot, create));
    const db = new DatabaseSync(path("rewritten"));
    const rewrittenAt = () =>
      Number(db.prepare("SELECT rewrittenAt FROM file").get()!["rewrittenAt"]);
    const retain = on(
      "rewritten",
      ChatArchive.use((archive) =>
        archive.erase(chatbot, { _tag: "IdleFor", millis: 0 }, "retention"),
      ),
    );
    yield* Effect.sleep("5 millis");
    assert.strictEqual(yield* retain, 1);
    const first = rewrittenAt();
    assert.isAbove(first, 0);
    yield* on("rewritten", create);
    yield* Effect.sleep("5 millis");
    assert.strictEqual(yield* retain, 1);
    assert.strictEqual(rewrittenAt(), first);
    db.close();
  }),
);

it.effect("a store that may not migrate refuses a file that is missing or out of date", () =>
  Effect.gen(function* () {
    const open = Layer.build(layerSqlite({ file: path("commands"), migrates: false }));
    const refusal = Effect.map(Effect.flip(Effect.scoped(open)), ({ message }) => message);
    assert.match(yield* refusal, /does not exist/);
    writeFileSync(path("commands"), "");
    assert.match(yield* refusal, /out of date: run "parley migrate" first/);
    yield* on("commands", registerChatbot);
    yield* Effect.scoped(open);
  }),
);

it.effect("what a killed process was erasing is erased when the file is opened again", () =>
  Effect.gen(function* () {
    yield* on("half", Effect.andThen(registerChatbot, create));
    const db = new DatabaseSync(path("half"));
    db.exec("INSERT INTO remains VALUES (1, 1); DELETE FROM chats");
    const entries = () => db.prepare("SELECT count(*) AS count FROM entries").get()!["count"];
    assert.strictEqual(entries(), 1);
    yield* on(
      "half",
      Effect.promise(async () => {
        while (entries() !== 0) await new Promise((resume) => setTimeout(resume, 5));
      }),
    );
    db.close();
  }),
);

const entryFields = "chatbot, id, chatId, question, answer, moderation, flagged, createTime";
/** Inserts entries of a chat, and returns how often `work` writes, and the counts of rows that it leaves. */
const eraseEntries = Effect.fnUntraced(function* (
  name: string,
  entries: string,
  work: (rows: ReturnType<typeof makeRows>) => Effect.Effect<unknown, StorageUnavailable>,
) {
  yield* on(name, Effect.andThen(registerChatbot, create));
  const db = new DatabaseSync(path(name));
  db.exec(entries);
  const database = yield* openDatabase(path(name));
  let writes = 0;
  yield* work(
    makeRows({
      ...database,
      write: (body) => Effect.suspend(() => (writes++, database.write(body))),
    }),
  );
  const counts = ["chats", "entries", "idempotencyKeys", "remains"].map(
    (table) => db.prepare(`SELECT count(*) AS count FROM ${table}`).get()!["count"],
  );
  const usage = db.prepare("SELECT sum(answers) AS answers FROM erasedUsage").get()!["answers"];
  db.close();
  return { counts, usage, writes };
});
const eraseChat = ({ rows }: ReturnType<typeof makeRows>) =>
  rows.erase(chatbot, { _tag: "Chat", id: 1 as never }, () => {});
const numbers = (count: number) =>
  `WITH RECURSIVE numbers (n) AS (SELECT 11 UNION ALL SELECT n + 1 FROM numbers WHERE n < ${count + 10})`;

it.effect("an erasure deletes at most a megabyte of text, or one entry, in a transaction", () =>
  Effect.gen(function* () {
    const entries = `${numbers(3)} INSERT INTO entries (${entryFields})
      SELECT 1, n, 1, '?', hex(zeroblob(6e5)), '', 0, 0 FROM numbers`;
    const result = yield* eraseEntries("large", entries, eraseChat);
    assert.deepStrictEqual(result, { counts: [0, 0, 0, 0], usage: 3, writes: 4 });
  }),
);

it.effect("a chat with more entries than a transaction deletes is erased, and its usage kept", () =>
  Effect.gen(function* () {
    const entries = `${numbers(600)} INSERT INTO entries (${entryFields})
      SELECT 1, n, 1, '?', 'answer', '', 0, 0 FROM numbers`;
    const { counts, usage } = yield* eraseEntries("long", entries, eraseChat);
    assert.deepStrictEqual([counts, usage], [[0, 0, 0, 0], 600]);
  }),
);

it.effect("a deleted chatbot leaves no chats, entries, keys or usage", () =>
  Effect.gen(function* () {
    const rows = `
      ${numbers(60)} INSERT INTO chats (chatbot, id, createTime) SELECT 1, n, 0 FROM numbers;
      ${numbers(300)} INSERT INTO idempotencyKeys (chatbot, key, madeAt, record) SELECT 1, n, 0, '{}' FROM numbers;
      -- The chat of the last ones is gone, as if a process had been killed.
      ${numbers(300)} INSERT INTO entries (${entryFields})
        SELECT 1, n, min(n, 100), '?', 'answer', '', 0, 0 FROM numbers;
      DELETE FROM chatbots; INSERT INTO remains VALUES (1, NULL)`;
    const { counts, usage } = yield* eraseEntries("chatbot", rows, ({ clear }) => clear);
    assert.deepStrictEqual([counts, usage], [[0, 0, 0, 0], null]);
  }),
);

it.effect("what is being erased is not shown, and an import of the same chats loses nothing", () =>
  on(
    "again",
    Effect.gen(function* () {
      yield* Effect.andThen(registerChatbot, create);
      const archive = yield* ChatArchive;
      const records = yield* Stream.runCollect(archive.export(chatbot, "tester"));
      const db = new DatabaseSync(path("again"));
      // Another process has begun to erase the chat, and was killed.
      db.exec("INSERT INTO remains VALUES (1, 1); DELETE FROM chats");
      db.exec(`UPDATE entries SET metadata = '{"found":false}'`);
      db.close();
      const unanswered = archive.feedback(chatbot, new Date(0), "unanswered");
      assert.deepStrictEqual(yield* Stream.runCollect(unanswered), []);
      yield* archive.import(chatbot, Stream.fromIterable(records), "tester");
      yield* archive.erase(chatbot, { _tag: "UserRef", userRef: "nobody" }, "tester");
      const copies = yield* Stream.runCollect(archive.export(chatbot, "tester"));
      assert.deepStrictEqual(copies, records);
    }),
  ),
);
