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
import { afterAll } from "vitest";
import { layerSqlite } from "@parley/store-sqlite";

const folder = mkdtempSync(join(tmpdir(), "parley-sqlite-"));
afterAll(() => rmSync(folder, { recursive: true }));
const file = join(folder, "store.db");

const underTest = Layer.effect(
  StoreUnderTest,
  Effect.gen(function* () {
    const registry = yield* ChatbotRegistry;
    const other = yield* Layer.build(layerSqlite({ file }));
    return StoreUnderTest.of({
      newChatbot: Effect.provideService(registerChatbot, ChatbotRegistry, registry),
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

layer(Layer.provideMerge(underTest, layerSqlite({ file })))("SQLite store", (it) => {
  for (const { name, run } of storeChecks) it.effect(name, () => run);
});
