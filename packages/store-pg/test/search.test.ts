import { assert, describe, it } from "@effect/vitest";
import { ChatArchive, ChatStore, newestChats, type Chat } from "@parley/core";
import { registerChatbot } from "@parley/core/testing";
import { layerPostgres } from "@parley/store-pg";
import { Effect } from "effect";
import { fillChats, filledChatbot } from "./fill.ts";
import { clientOf, freshDatabase, freshSchema, optionsOf } from "./PostgresUnderTest.ts";

describe.each(["C", "C.UTF-8"])("a first search where letters are those of %s", (characterType) => {
  it.live("counts all that match and finds the newest, wherever they are", () =>
    Effect.gen(function* () {
      const database = yield* freshDatabase(`lc_collate 'C' lc_ctype '${characterType}'`);
      const { sql } = database;
      yield* Effect.gen(function* () {
        const store = yield* ChatStore;
        yield* fillChats(sql, filledChatbot, 30_000);
        yield* sql.unsafe(
          "update chat set folded_name = 'привет, 日本語! c++ ' || id where id % 1000 = 7",
        );
        // Everywhere, in a third, once, nowhere; only among the oldest, only among the newest, in the middle.
        const words = ["e", "lantern", "falcon 12345", "owl", " 9", " 29", " 1234"];
        for (const search of [...words, "привет", "при", "日本語", "語! c+", "++", "c++ 2"]) {
          for (const userRef of [null, "user 123"]) {
            const { items, total } = yield* store.listChats(filledChatbot, {
              ...newestChats,
              limit: 20,
              page: 2,
              search,
              userRef,
            });
            const ids = yield* sql.unsafe<{ readonly id: bigint }>(
              `select id from chat where strpos(folded_name, $1) > 0
                and coalesce(user_ref = $2, $2 is null) order by position desc`,
              [search, userRef],
            );
            assert.deepStrictEqual(
              { total, ids: items.map(({ id }) => id) },
              { total: ids.length, ids: ids.slice(20, 40).map(({ id }) => Number(id)) },
            );
          }
        }
      }).pipe(Effect.provide(layerPostgres(database)));
    }).pipe(Effect.scoped),
  );
});

/** Chats of a new chatbot, and how a search lists those that have `alpha` in their names. */
const makeNamed = Effect.gen(function* () {
  const chatbot = yield* registerChatbot;
  const store = yield* ChatStore;
  const create = (name: string) =>
    Effect.map(
      store.createChat(chatbot, { name, userRef: null, helloMessage: null }, null),
      ({ chat }) => chat,
    );
  const listed = Effect.map(
    store.listChats(chatbot, { ...newestChats, search: "alpha" }),
    ({ items, total }) => ({ total, names: items.map(({ name }) => name) }),
  );
  return { chatbot, create, listed };
});

describe("a remembered search", () => {
  it.live("gives every page as it is, however many chats came since", () =>
    Effect.gen(function* () {
      const chatbot = yield* registerChatbot;
      const store = yield* ChatStore;
      const chats: Array<Chat> = [];
      const create = (n: number) =>
        Effect.map(
          store.createChat(
            chatbot,
            { name: `needle ${n}`, userRef: null, helloMessage: null },
            null,
          ),
          ({ chat }) => void chats.push(chat),
        );
      const search = (page: number, limit: number) =>
        store.listChats(chatbot, { ...newestChats, search: "needle", page, limit });
      for (const more of [5, 300, 1, 199, 200, 201]) {
        yield* search(1, 25);
        yield* Effect.forEach(
          Array.from({ length: more }, (_, n) => n),
          create,
          { concurrency: 50 },
        );
        const newest = chats.toSorted((a, b) => b.id - a.id);
        for (const { limit, page } of [
          { limit: 25, page: 9 },
          { limit: 19, page: 11 },
          { limit: 25, page: 1 },
          { limit: 100, page: 2 },
          { limit: 100, page: 3 },
          { limit: 25, page: 40 },
        ]) {
          assert.deepStrictEqual(yield* search(page, limit), {
            total: newest.length,
            items: newest.slice((page - 1) * limit, page * limit),
          });
        }
      }
    }).pipe(Effect.provide(layerPostgres(optionsOf(freshSchema())))),
  );

  it.live("counts anew when a database takes over that lacks the newest chats", () => {
    const schema = freshSchema();
    return Effect.gen(function* () {
      const sql = yield* clientOf(schema, 1);
      const { create, listed } = yield* makeNamed;
      for (let n = 1; n <= 4; n++) yield* create(`alpha ${n}`);
      const names = ["alpha 4", "alpha 3", "alpha 2", "alpha 1"];
      assert.deepStrictEqual(yield* listed, { total: 4, names });
      // As a replica has it that the last two never reached.
      yield* sql.unsafe("delete from chat where position > 2");
      yield* sql.unsafe("update chat_counter set chats = 2, positions = 2");
      const fewer = { total: 2, names: names.slice(2) };
      assert.deepStrictEqual(yield* listed, fewer);
      for (const name of ["beta 1", "beta 2", "alpha 5"]) yield* create(name);
      assert.deepStrictEqual(yield* listed, { total: 3, names: ["alpha 5", ...fewer.names] });
      // The same again, but nobody looks before others are in their places.
      yield* sql.unsafe("delete from chat where position > 2");
      yield* sql.unsafe("update chat_counter set chats = 2, positions = 2");
      for (const name of ["beta 3", "beta 4", "beta 5"]) yield* create(name);
      assert.deepStrictEqual(yield* listed, fewer);
    }).pipe(Effect.provide(layerPostgres(optionsOf(schema))), Effect.scoped);
  });

  it.live("counts anew when a database takes over that lacks an erasure, and has another", () => {
    const schema = freshSchema();
    return Effect.gen(function* () {
      const sql = yield* clientOf(schema, 1);
      const { chatbot, create, listed } = yield* makeNamed;
      const archive = yield* ChatArchive;
      const names = ["alpha 1", "beta", "alpha 2", "alpha 3"];
      const chats = yield* Effect.forEach(names, create);
      const erase = (chat: number) =>
        archive.erase(chatbot, { _tag: "Chat", id: chats[chat]!.id }, "test");
      const tables = ["chat", "chat_counter", "position_gap"];
      for (const table of tables)
        yield* sql.unsafe(`create table replica_${table} as table ${table}`);
      yield* erase(0);
      assert.deepStrictEqual(yield* listed, { total: 2, names: ["alpha 3", "alpha 2"] });
      for (const table of tables) {
        yield* sql.unsafe(`delete from ${table}`);
        yield* sql.unsafe(`insert into ${table} table replica_${table}`);
      }
      yield* erase(1);
      const all = { total: 3, names: ["alpha 3", "alpha 2", "alpha 1"] };
      assert.deepStrictEqual(yield* listed, all);
    }).pipe(Effect.provide(layerPostgres(optionsOf(schema))), Effect.scoped);
  });
});
