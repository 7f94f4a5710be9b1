import { assert, layer } from "@effect/vitest";
import { defaultEntryQuery, defaultChatQuery, type ChatQuery, type EntryQuery } from "@parley/core";
import { ChatbotId, ChatId, ChatArchive } from "@parley/core/ports";
import { layerPostgres } from "@parley/store-pg";
import { Context, Effect, Layer } from "effect";
import type { SqlClient } from "effect/sql";
import { byPosition, byText, quickReadLimit, byFilter } from "../src/chats/ChatListing.ts";
import { entryPage } from "../src/chats/EntryListing.ts";
import type { Statement } from "../src/connections/Session.ts";
import { sizesOfChatbots } from "../src/PgRows.ts";
import {
  eraseEvery,
  fillChats,
  fillEntries,
  filledChatbot as chatbot,
  fillThinned,
  settle,
} from "./fill.ts";
import { buffers } from "./buffers.ts";
import { freshDatabase } from "./PostgresUnderTest.ts";

const chats = 100_000;
const most = 200;

class Filled extends Context.Service<Filled, SqlClient.SqlClient>()("Filled") {}

const fill = (sql: SqlClient.SqlClient) =>
  Effect.gen(function* () {
    yield* fillChats(sql, chatbot, chats);
    yield* fillEntries(sql, chatbot, chats);
    yield* settle(sql);
    return sql;
  });

/** The rows have a database of their own, because VACUUM keeps dead rows that its other transactions may still see. */
const layerFilled = Layer.unwrap(
  Effect.map(freshDatabase(), (database) =>
    Layer.effect(Filled, fill(database.sql)).pipe(
      Layer.provideMerge(layerPostgres({ url: database.url })),
    ),
  ),
);

const query = (more: Partial<ChatQuery> = {}): ChatQuery => ({ ...defaultChatQuery, ...more });
const entries = (more: Partial<EntryQuery> = {}): EntryQuery => ({ ...defaultEntryQuery, ...more });

const directions = ["asc", "desc"] as const;
const byId = (descending: boolean) => [{ field: "id", descending }] as const;
const pages = [1, 2, 5, 6, 7, chats / 50, chats / 25, chats / 25 + 1, Number.MAX_SAFE_INTEGER];
const matching = (chatbot: number, more: Partial<ChatQuery>) => byFilter(chatbot, query(more));
const ofUser = (chatbot: number, more: Partial<ChatQuery>) =>
  byFilter(chatbot, query(more), quickReadLimit + 1);

/** Pages near either end, ordered by text. */
const byTexts = (chatbot: number) =>
  (["name", "userRef"] as const).flatMap((field) =>
    [true, false].flatMap((descending) =>
      [1, 4, chats / 25 - 3, chats / 25, chats / 25 + 1].map((page): List => [
        `page ${page} by ${field}${descending ? ", descending" : ""}`,
        byText(chatbot, query({ page }), { field, descending }),
        "force_custom_plan",
      ]),
    ),
  );

const firstChat = ChatId.make(1);

type List = readonly [name: string, statement: Statement, mode?: "force_custom_plan"];

/** The lists whose cost must not grow with the number of rows. */
const flat: ReadonlyArray<List> = [
  ...pages.flatMap((page) =>
    directions.flatMap((direction): ReadonlyArray<List> => [
      [`page ${page} ${direction}`, byPosition(chatbot, query({ page }), direction)],
      [
        `history page ${page} ${direction}`,
        entryPage(chatbot, firstChat, entries({ page, orderBy: byId(direction === "desc") })),
      ],
    ]),
  ),
  ...[1, 2, 100].flatMap((page) =>
    [true, false].map((descending): List => [
      `page ${page} of a user's chats${descending ? ", newest first" : ""}`,
      ofUser(chatbot, { userRef: "user 500", page, orderBy: byId(descending) }),
    ]),
  ),
  ["looking up a chat by its id", matching(chatbot, { id: 77_777 })],
  ["looking up a missing chat by its id", matching(chatbot, { id: 777_777 })],
  ["looking up an entry by its id", entryPage(chatbot, firstChat, entries({ id: 77_777 }))],
  ...byTexts(chatbot),
];

/** Asserts that every page of the chatbot's chats touches few buffers. */
const pagesAreFlat = Effect.fnUntraced(function* (chatbot: number) {
  const sql = yield* Filled;
  yield* settle(sql);
  for (const page of pages) {
    for (const direction of directions) {
      const statement = byPosition(chatbot, query({ page }), direction);
      assert.isAtMost(yield* buffers(sql, statement), most);
    }
  }
});

layer(layerFilled, { timeout: "2 minutes" })(
  "lists of 100,000 rows touch at most 200 buffers",
  (it) => {
    for (const [name, statement, mode] of flat) {
      it.effect(`${name} touches at most ${most} buffers`, () =>
        Effect.gen(function* () {
          const sql = yield* Filled;
          assert.isAtMost(yield* buffers(sql, statement, mode), most);
        }),
      );
    }

    for (const term of ["falcon 77777", "привет", "qx zw", "o'n", "a.b.c", "हिन्दी", "ที่นี่", "۱۲۳۴"]) {
      it.effect(`a search for ${term} uses the index`, () =>
        Effect.gen(function* () {
          const statement = matching(chatbot, { search: term });
          const touched = yield* buffers(yield* Filled, statement, "force_custom_plan");
          assert.isAtMost(touched, most);
        }),
      );
    }

    for (const term of ["zq", "é", "c++", "++ ++", "日本", "🙂🙂🙂"]) {
      it.effect(
        `a search for ${term}, which the index does not support, reads the table at most once`,
        () =>
          Effect.gen(function* () {
            const sql = yield* Filled;
            const [table] = yield* sql.unsafe<{ readonly pages: number }>(
              "select relpages as pages from pg_class where oid = 'chat'::regclass",
            );
            const statement = matching(chatbot, { search: term });
            const touched = yield* buffers(sql, statement, "force_custom_plan");
            assert.isBelow(touched, table!.pages + most);
          }),
      );
    }

    it.effect("pages touch few buffers after one chat in 97 is erased", () =>
      Effect.gen(function* () {
        yield* eraseEvery(yield* Filled, chatbot, 97);
        yield* pagesAreFlat(chatbot);
      }),
    );

    it.effect("pages touch few buffers even after nearly all of ten million chats are erased", () =>
      Effect.gen(function* () {
        const sql = yield* Filled;
        const thinned = chatbot + 1;
        yield* fillThinned(sql, thinned, 10_000_000);
        yield* pagesAreFlat(thinned);
      }),
    );

    it.effect(
      "lists touch few buffers in a chatbot that was never analyzed, and if a user's chats are scattered",
      () =>
        Effect.gen(function* () {
          const sql = yield* Filled;
          const grown = chatbot + 2;
          yield* fillChats(sql, grown, chats);
          yield* sql.unsafe(
            "update chat set user_ref = 'scattered' where chatbot_id = $1 and position % 300 = 0",
            [grown],
          );
          const lists: ReadonlyArray<List> = [
            ...byTexts(grown),
            ...[25, 100].flatMap((limit): ReadonlyArray<List> => [
              ["a scattered user's", ofUser(grown, { userRef: "scattered", limit })],
              ["a user's", ofUser(grown, { userRef: "user 7", limit })],
              ["an id's", matching(grown, { id: 77_777, userRef: "user 777", limit })],
            ]),
          ];
          // Without the visibility map, PostgreSQL visits each row that it counts or skips.
          for (const limit of [3 * most, most]) {
            for (const [what, statement, mode] of lists) {
              assert.isAtMost(yield* buffers(sql, statement, mode), limit, what);
            }
            yield* settle(sql);
          }
        }),
    );

    it.effect(
      "looking up an entry by its id touches few buffers in a chat that has grown since ANALYZE ran",
      () =>
        Effect.gen(function* () {
          const sql = yield* Filled;
          const small = ChatbotId.make(chatbot + 3);
          yield* fillChats(sql, small, 2);
          yield* sql.unsafe(
            `insert into entry (chatbot_id, chat_id, id, position, question, answer, moderation, flagged, create_time)
        select $1, 1, 1000000 + n, n, '', '', 'none', false, now() from generate_series(1, 50000) n`,
            [small],
          );
          const statement = entryPage(small, firstChat, entries({ id: 1_049_000 }));
          assert.isAtMost(yield* buffers(sql, statement), most);
        }),
    );

    it.effect("the sizes of chatbots are estimated from at most 3,000 buffers of the entries", () =>
      Effect.gen(function* () {
        const sql = yield* Filled;
        const big = ChatbotId.make(chatbot + 4);
        yield* fillChats(sql, big, 2);
        yield* sql.unsafe(
          `insert into entry (chatbot_id, chat_id, id, position, question, answer, moderation, flagged, create_time)
        select $1, 1, 2000000 + n, n, '', repeat('a', 400), 'none', false, now() from generate_series(1, 150000) n`,
          [big],
        );
        const touched = yield* buffers(sql, { text: sizesOfChatbots, values: [] });
        assert.isAtMost(touched, 3_000);
        const sizes = yield* ChatArchive.use((archive) => archive.sizes);
        const { bytes, chats, entries } = sizes.find((size) => size.chatbot === big)!;
        assert.strictEqual(chats, 2);
        assert.approximately(entries, 150_000, 30_000);
        assert.approximately(bytes / entries, 550, 10);
      }),
    );
  },
);
