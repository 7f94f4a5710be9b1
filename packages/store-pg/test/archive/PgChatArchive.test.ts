import { assert } from "@effect/vitest";
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
import { Effect, Fiber, Stream } from "effect";
import { bare, entry, inSchema, takeFree } from "../fixtures.ts";
import { hold } from "../hold.ts";

/** Imports a chat, and its only entry, which has the same id. */
const importChat = (chatbot: ChatbotId, id: number, answer = "a") => {
  const [chatId, createTime] = [ChatId.make(id), new Date("2020-01-01T00:00:00Z")];
  const { usage, ...texts } = entry;
  const records: ReadonlyArray<ArchiveRecord> = [
    { _tag: "Chat", chat: { id: chatId, name: null, userRef: null, createTime } },
    { _tag: "Entry", entry: { ...texts, answer, id, chatId, createTime }, usage },
  ];
  return ChatArchive.use((archive) =>
    archive.import(chatbot, Stream.fromIterable(records), "test"),
  );
};

for (const id of [1, 2])
  inSchema(`after an import of id ${id} into a new database, new ids are higher`, function* () {
    const [chats, turns] = [yield* ChatStore, yield* TurnStore];
    const chatbot = yield* registerChatbot;
    yield* importChat(chatbot, id);
    const turn = yield* takeFree(chatbot, ChatId.make(id));
    assert.isAbove((yield* turns.append(turn, entry)).id, id);
    assert.isAbove((yield* chats.createChat(chatbot, bare, null)).chat.id, id);
  });

inSchema(
  "after an import of very high ids, new chats can still be exported and imported",
  function* () {
    const archive = yield* ChatArchive;
    const [first, other, to] = yield* Effect.replicateEffect(registerChatbot, 3);
    yield* importChat(first!, 2 ** 52);
    yield* ChatStore.use((chats) => chats.createChat(other!, bare, null));
    assert.strictEqual(yield* archive.import(to!, archive.export(other!, "test"), "test"), 1);
  },
);

inSchema(
  "an import waits while another moves the sequences, and never moves them back",
  function* (sql) {
    const [first, second] = yield* Effect.replicateEffect(registerChatbot, 2);
    const chats = yield* ChatStore;
    yield* importChat(first!, 5_000);
    // Stands for another import, which takes this lock at its end.
    const other = yield* hold(
      sql,
      "select pg_advisory_xact_lock(hashtextextended('parley.sequences.' || current_schema(), 0))",
      [],
    );
    const importing = yield* Effect.forkChild(importChat(second!, 7_000));
    yield* other.awaited;
    yield* sql.unsafe("select setval('chat_id', 9000), setval('entry_id', 9000)");
    yield* other.release;
    yield* Fiber.join(importing);
    const { chat } = yield* chats.createChat(second!, bare, null);
    assert.strictEqual(chat.id, 9_001);
  },
);

inSchema("an imported entry of 17 MB can be read and exported", function* () {
  const answer = "a".repeat(17_000_000);
  const [archive, chats] = [yield* ChatArchive, yield* ChatStore];
  const chatbot = yield* registerChatbot;
  yield* importChat(chatbot, 1, answer);
  const { items } = yield* chats.listEntries(chatbot, ChatId.make(1), defaultEntryQuery);
  assert.isTrue(items[0]!.answer === answer, "page");
  const exportedRecords = yield* Stream.runCollect(archive.export(chatbot, "test"));
  const last = exportedRecords.at(-1)!;
  assert.isTrue(last._tag === "Entry" && last.entry.answer === answer, "export");
});
