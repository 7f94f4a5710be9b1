/**
 * Compares lists of many chats with lists from plain arrays.
 */
import { assert, it } from "@effect/vitest";
import { defaultChatQuery, type Chat, type ChatQuery } from "@parley/core";
import { ChatArchive, ChatStore } from "@parley/core/ports";
import { chatPage } from "@parley/core/testing";
import { layerPostgres } from "@parley/store-pg";
import { Context, Effect, Layer, Random, Stream } from "effect";
import { filledChatbot as chatbot, fillChats, settle } from "../fill.ts";
import { clientOf, freshSchema, optionsOf } from "../PostgresUnderTest.ts";

const size = 105_000;

/** Searches that match a few hundred chats, all, the oldest, the newest or none, with and without an index. */
const searches = ["falcon Glacier", "r", " 1", " 1049", "nowhere", "_", "%", "3%", "9", "ern"];
const users = ["user 7", "user 1049", "nobody"];
const deep = [1, 2, 3, 8, 30, 101, 400, 3_000, Number.MAX_SAFE_INTEGER];

const oneOf = <A>(all: ReadonlyArray<A>) =>
  Effect.map(Random.nextIntBetween(0, all.length - 1), (at) => all[at]!);

const randomQuery = Effect.gen(function* () {
  const kind = yield* Random.nextIntBetween(0, 9);
  // Only short lists are ordered by text, because sorting the array of all chats by text is slow.
  const few = kind === 0;
  const search = few ? searches[0]! : kind < 8 ? yield* oneOf(searches) : null;
  const userRef = kind === 1 || kind === 8 ? yield* oneOf(users) : null;
  const field = yield* oneOf(
    few || kind === 8 ? (["name", "userRef"] as const) : (["id", "createTime"] as const),
  );
  const descending = yield* Random.nextBoolean;
  return {
    limit: yield* oneOf([1, 7, 25, 100]),
    page: yield* oneOf(deep),
    orderBy: [{ field, descending }],
    id: null,
    include: [],
    search,
    userRef,
  } satisfies ChatQuery;
});

/** A page far from either end, ordered by text. The array of all chats must be sorted for it as well. */
const deepByText = Effect.gen(function* () {
  const field = yield* oneOf(["name", "userRef"] as const);
  return {
    ...defaultChatQuery,
    page: yield* Random.nextIntBetween(800, 3_400),
    orderBy: [{ field, descending: yield* Random.nextBoolean }],
  } satisfies ChatQuery;
});

const seed = Date.now();
it.live(
  `random lists of ${size} chats equal lists from plain arrays as chats are created and erased (seed ${seed})`,
  () => {
    const schema = freshSchema();
    return Effect.gen(function* () {
      const sql = yield* clientOf(schema, 1);
      yield* fillChats(sql, chatbot, size);
      yield* settle(sql);
      const archive = yield* ChatArchive;
      const another = yield* Layer.build(Layer.fresh(layerPostgres(optionsOf(schema))));
      const stores = [yield* ChatStore, Context.get(another, ChatStore)];
      const all = Effect.map(Stream.runCollect(archive.export(chatbot, "test")), (records) =>
        records.flatMap((record): Array<Chat> => (record._tag === "Chat" ? [record.chat] : [])),
      );
      let model = yield* all;
      for (let round = 0; round < 5; round++) {
        for (let n = 0; n < 13; n++) {
          const query = yield* n < 12 ? randomQuery : deepByText;
          const store = yield* oneOf(stores);
          assert.deepStrictEqual(
            yield* store.listChats(chatbot, query),
            chatPage(model, query),
            JSON.stringify(query),
          );
        }
        for (let n = 0; n < 3; n++) {
          const name = `falcon Glacier ${yield* oneOf(searches)}`;
          const store = yield* oneOf(stores);
          const { chat } = yield* store.createChat(
            chatbot,
            { name, userRef: yield* oneOf(users), helloMessage: null },
            null,
          );
          model = [...model, chat];
        }
        if (round % 2 === 1) {
          const { id } = yield* oneOf(model);
          const userRef = `user ${yield* Random.nextIntBetween(0, size / 100)}`;
          yield* archive.erase(chatbot, { _tag: "Chat", id }, "test");
          yield* archive.erase(chatbot, { _tag: "UserRef", userRef }, "test");
          model = model.filter((chat) => chat.id !== id && chat.userRef !== userRef);
        }
      }
    }).pipe(Random.withSeed(seed), Effect.provide(layerPostgres(optionsOf(schema))), Effect.scoped);
  },
  120_000,
);
