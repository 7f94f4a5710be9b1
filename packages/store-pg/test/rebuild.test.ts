import { it } from "@effect/vitest";
import { ChatStore, TurnStore } from "@parley/core";
import { registerChatbot } from "@parley/core/testing";
import { layerPostgres } from "@parley/store-pg";
import { Effect, Fiber } from "effect";
import { clientOf, freshSchema, optionsOf } from "./PostgresUnderTest.ts";

const chat = { name: null, userRef: null, helloMessage: null };
const create = (chatbot: number, key: string | null) =>
  ChatStore.use((store) =>
    store.createChat(chatbot, chat, key === null ? null : { key, fingerprint: "f" }),
  );

it.live.each([
  ["a creation's key", "request_pkey_ccnew", (chatbot: number) => create(chatbot, "second")],
  [
    "an ask's key",
    "request_pkey_ccnew1",
    (chatbot: number) =>
      TurnStore.use((turns) => turns.take(chatbot, null, { key: "second", fingerprint: "f" })),
  ],
  [
    "a chatbot's first chat",
    "tally_pkey_ccold",
    () => Effect.flatMap(registerChatbot, (another) => create(another, null)),
  ],
] as const)("%s is written while its index is rebuilt", ([, index, write]) => {
  const schema = freshSchema();
  return Effect.gen(function* () {
    const sql = yield* clientOf(schema);
    const chatbot = yield* registerChatbot;
    yield* create(chatbot, "first");
    // REINDEX CONCURRENTLY has one that holds rows to be unique, and that ON CONFLICT does not look at. Here only one
    // row fits into it.
    yield* sql.unsafe(`create unique index ${index} on ${index.split("_", 1)} ((true))`);
    const writing = yield* Effect.forkChild(write(chatbot), { startImmediately: true });
    yield* Effect.sleep("40 millis");
    yield* sql.unsafe(`drop index ${index}`);
    yield* Fiber.join(writing);
  }).pipe(Effect.provide(layerPostgres(optionsOf(schema))), Effect.scoped);
});
