import { assert, describe, it } from "@effect/vitest";
import { ChatStore, newestChats, type Chat } from "@parley/core";
import { registerChatbot } from "@parley/core/testing";
import { layerPostgres } from "@parley/store-pg";
import { Effect } from "effect";
import { fillChats, filledChatbot } from "./fill.ts";
import { clientOf, freshSchema, optionsOf } from "./PostgresUnderTest.ts";

describe("a first search", () => {
  it.live("counts all that match and finds the newest, wherever they are", () => {
    const schema = freshSchema();
    return Effect.gen(function* () {
      const store = yield* ChatStore;
      const sql = yield* clientOf(schema);
      yield* fillChats(sql, filledChatbot, 30_000);
      // Everywhere, in a third, once, nowhere; only among the oldest, only among the newest, in the middle.
      for (const search of ["e", "lantern", "falcon 12345", "owl", " 9", " 29", " 1234"]) {
        for (const userRef of [null, "user 123"]) {
          const { items, total } = yield* store.listChats(filledChatbot, {
            ...newestChats,
            limit: 100,
            page: 2,
            search,
            userRef,
          });
          const ids = yield* sql.unsafe<{ readonly id: bigint }>(
            `select id from chat where folded_name like $1 and coalesce(user_ref = $2, $2 is null)
            order by position desc`,
            [`%${search}%`, userRef],
          );
          assert.deepStrictEqual(
            { total, ids: items.map(({ id }) => id) },
            { total: ids.length, ids: ids.slice(100, 200).map(({ id }) => Number(id)) },
          );
        }
      }
    }).pipe(Effect.provide(layerPostgres(optionsOf(schema))), Effect.scoped);
  });
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
});
