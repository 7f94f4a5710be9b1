import { assert, it } from "@effect/vitest";
import { defaultEntryQuery } from "@parley/core";
import {
  type ChatbotId,
  ChatId,
  ChatArchive,
  ChatStore,
  TurnStore,
  type ArchiveRecord,
} from "@parley/core/ports";
import { registerChatbot } from "@parley/core/testing";
import { layerPostgres } from "@parley/store-pg";
import { Effect, Fiber, Stream } from "effect";
import { takeFree } from "../fixtures.ts";
import { hold } from "../hold.ts";
import { clientOf, freshSchema, optionsOf } from "../PostgresUnderTest.ts";

const createTime = new Date("2020-01-01T00:00:00Z");
const bare = { name: null, userRef: null, helloMessage: "Hello" };
const texts = { question: "q", answer: "a", moderation: "none", flagged: false };

/** A chat and its only entry, which has the same id. */
const conversation = (id: number): ReadonlyArray<ArchiveRecord> => [
  { _tag: "Chat", chat: { id: ChatId.make(id), name: null, userRef: null, createTime } },
  { _tag: "Entry", entry: { ...texts, id, chatId: ChatId.make(id), createTime }, usage: null },
];

const importChat = (chatbot: ChatbotId, id: number) =>
  ChatArchive.use((archive) =>
    archive.import(chatbot, Stream.fromIterable(conversation(id)), "test"),
  );

it.live("after an import of very high ids, new chats can still be exported and imported", () =>
  Effect.gen(function* () {
    const archive = yield* ChatArchive;
    const [first, other, to] = [
      yield* registerChatbot,
      yield* registerChatbot,
      yield* registerChatbot,
    ];
    yield* importChat(first, 2 ** 52);
    yield* ChatStore.use((chats) => chats.createChat(other, bare, null));
    assert.strictEqual(yield* archive.import(to, archive.export(other, "test"), "test"), 1);
  }).pipe(Effect.provide(layerPostgres(optionsOf(freshSchema())))),
);

for (const id of [1, 2]) {
  it.live(`after an import of id ${id} into a new database, new ids are higher`, () =>
    Effect.gen(function* () {
      const [chats, turns] = [yield* ChatStore, yield* TurnStore];
      const chatbot = yield* registerChatbot;
      yield* importChat(chatbot, id);
      const turn = yield* takeFree(chatbot, ChatId.make(id));
      const entry = yield* turns.append(turn, { ...texts, usage: null });
      assert.isAbove(entry.id, id);
      const { chat } = yield* chats.createChat(chatbot, bare, null);
      assert.isAbove(chat.id, id);
    }).pipe(Effect.provide(layerPostgres(optionsOf(freshSchema())))),
  );
}

it.live("an import waits while another moves the sequences, and never moves them back", () => {
  const schema = freshSchema();
  return Effect.gen(function* () {
    const [first, second] = [yield* registerChatbot, yield* registerChatbot];
    const sql = yield* clientOf(schema);
    const chats = yield* ChatStore;
    yield* importChat(first, 5_000);
    // Stands for another import, which takes this lock at its end.
    const other = yield* hold(
      sql,
      "select pg_advisory_xact_lock(hashtextextended('parley.sequences.' || current_schema(), 0))",
      [],
    );
    const importing = yield* Effect.forkChild(importChat(second, 7_000));
    yield* other.awaited;
    yield* sql.unsafe("select setval('chat_id', 9000), setval('entry_id', 9000)");
    yield* other.release;
    yield* Fiber.join(importing);
    const { chat } = yield* chats.createChat(second, bare, null);
    assert.strictEqual(chat.id, 9_001);
  }).pipe(Effect.provide(layerPostgres(optionsOf(schema))), Effect.scoped);
});

it.live("an imported entry of 17 MB can be read and exported", () =>
  Effect.gen(function* () {
    const answer = "a".repeat(17_000_000);
    const [archive, chats] = [yield* ChatArchive, yield* ChatStore];
    const chatbot = yield* registerChatbot;
    const records = conversation(1).map((record) =>
      record._tag === "Entry" ? { ...record, entry: { ...record.entry, answer } } : record,
    );
    yield* archive.import(chatbot, Stream.fromIterable(records), "test");
    const { items } = yield* chats.listEntries(chatbot, ChatId.make(1), defaultEntryQuery);
    assert.isTrue(items[0]!.answer === answer, "page");
    const exportedRecords = yield* Stream.runCollect(archive.export(chatbot, "test"));
    const last = exportedRecords.at(-1)!;
    assert.isTrue(last._tag === "Entry" && last.entry.answer === answer, "export");
  }).pipe(Effect.provide(layerPostgres(optionsOf(freshSchema())))),
);
