/**
 * The whole conformance kit over the SQLite store.
 */
import { layer } from "@effect/vitest";
import { ChatArchive, ChatbotRegistry, ChatStore, TurnStore } from "@parley/core";
import { registerChatbot, storeChecks, StoreUnderTest } from "@parley/core/testing";
import { Context, Effect, Layer } from "effect";
import { TestClock } from "effect/testing";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { afterAll } from "vitest";
import { layerSqlite } from "./SqliteStore.ts";

const folder = mkdtempSync(join(tmpdir(), "parley-sqlite-"));
afterAll(() => rmSync(folder, { recursive: true }));
const file = join(folder, "store.db");

/** The chats as they lie in the file, read without the store's code. */
const peek = (chatbot: number) => {
  using db = new DatabaseSync(file, { readOnly: true });
  const entries = db.prepare("SELECT * FROM entries WHERE chatbot = ? AND chatId = ? ORDER BY id");
  return db
    .prepare("SELECT * FROM chats WHERE chatbot = ? ORDER BY id")
    .all(chatbot)
    .map((chat) => ({
      id: Number(chat["id"]),
      name: chat["name"] as string | null,
      userRef: chat["userRef"] as string | null,
      createTime: new Date(Number(chat["createTime"])),
      entries: entries.all(chatbot, chat["id"]!).map((entry) => ({
        id: Number(entry["id"]),
        question: String(entry["question"]),
        answer: String(entry["answer"]),
        moderation: String(entry["moderation"]),
        flagged: entry["flagged"] === 1,
        usage: entry["usage"] === null ? null : JSON.parse(String(entry["usage"])),
        createTime: new Date(Number(entry["createTime"])),
      })),
    }));
};

const underTest = Layer.effect(
  StoreUnderTest,
  Effect.gen(function* () {
    const registry = yield* ChatbotRegistry;
    const other = yield* Layer.build(layerSqlite(file));
    return StoreUnderTest.of({
      newChatbot: Effect.provideService(registerChatbot, ChatbotRegistry, registry),
      peek: (chatbot) => Effect.sync(() => peek(chatbot)),
      pass: (millis) => TestClock.adjust(millis),
      second: {
        chats: Context.get(other, ChatStore),
        turns: Context.get(other, TurnStore),
        archive: Context.get(other, ChatArchive),
        registry: Context.get(other, ChatbotRegistry),
      },
    });
  }),
);

layer(Layer.provideMerge(underTest, layerSqlite(file)))("SQLite store", (it) => {
  for (const { name, run } of storeChecks) it.effect(name, () => run);
});
