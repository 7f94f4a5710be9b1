import { assert, describe, it } from "@effect/vitest";
import { ChatStore, newestChats } from "@parley/core";
import { layerPostgres } from "@parley/store-pg";
import { Effect } from "effect";
import { fillChats, filledChatbot } from "../fill.ts";
import { freshDatabase } from "../PostgresUnderTest.ts";

describe.each(["C", "C.UTF-8"])(
  "a search in a database with character type %s",
  (characterType) => {
    it.live("counts all chats that match and returns their page, wherever they are", () =>
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
  },
);
