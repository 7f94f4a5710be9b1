import { ChatId } from "@parley/core/ports";
import { assert, it } from "@effect/vitest";
import { defaultEntryQuery, defaultChatQuery, type ChatQuery, type EntryQuery } from "@parley/core";
import { layerPostgres } from "@parley/store-pg";
import { Effect, Layer } from "effect";
import { byFilter } from "../../src/chats/ChatListing.ts";
import { makePools } from "../../src/connections/PgPools.ts";
import type { Session } from "../../src/connections/Session.ts";
import { fillChats, filledChatbot as chatbot } from "../fill.ts";
import { makeStore } from "../fixtures.ts";
import { clientOf, freshSchema, optionsOf } from "../PostgresUnderTest.ts";

const by = <Field extends string>(field: Field) => ({ field, descending: false });

type List = { readonly chats: Partial<ChatQuery> } | { readonly entries: Partial<EntryQuery> };

const quick: ReadonlyArray<List> = [
  { chats: {} },
  { chats: { page: 400, orderBy: [by("createTime"), by("id")] } },
  { chats: { id: 7, search: "lantern", orderBy: [by("name")] } },
  { chats: { userRef: "user 7" } },
  { chats: { userRef: "many", page: 2 } },
  { entries: {} },
  { entries: { id: 1, orderBy: [by("answer")] } },
];
const slow: ReadonlyArray<List> = [
  { chats: { search: "nowhere" } },
  { chats: { userRef: "very many" } },
  { chats: { userRef: "user 7", orderBy: [by("name")] } },
  { chats: { orderBy: [by("name")] } },
  { chats: { orderBy: [by("userRef"), by("name")] } },
  { chats: { orderBy: [by("createTime"), { field: "id", descending: true }] } },
  { entries: { orderBy: [by("answer")] } },
];

it.live(
  "a list uses the bulk connections only if its cost grows with the number of rows, and is the same from either end",
  () => {
    const options = optionsOf(freshSchema());
    return Effect.gen(function* () {
      yield* Layer.build(layerPostgres(options));
      const sql = yield* clientOf(options.schema, 1);
      yield* fillChats(sql, chatbot, 30_000);
      yield* sql.unsafe(
        "update chat set user_ref = case when id > 20000 then 'many' else 'very many' end where id > 9999 and id <= 30000",
      );
      const pools = yield* makePools({ ...options, maxConnections: 6 });
      let statements = 0;
      const query: Session["query"] = (...args) => {
        statements++;
        return pools.bulk.query(...args);
      };
      const countingPools = { ...pools, bulk: { ...pools.bulk, query } };
      const { listChats, listEntries } = yield* makeStore(countingPools);
      for (const [lists, expected] of [
        [quick, 0],
        [slow, 1],
      ] as const) {
        for (const list of lists) {
          statements = 0;
          yield* "chats" in list
            ? listChats(chatbot, { ...defaultChatQuery, ...list.chats })
            : listEntries(chatbot, ChatId.make(1), { ...defaultEntryQuery, ...list.entries });
          assert.strictEqual(statements, expected, JSON.stringify(list));
        }
      }
      // A page in the second half of an order by text is read from the end.
      const [lastPage, firstPage] = yield* Effect.forEach([1_199, 2], (page) => {
        const orderBy = [{ field: "name", descending: page === 2 }] as const;
        return listChats(chatbot, { ...defaultChatQuery, page, orderBy });
      });
      assert.deepStrictEqual(lastPage!.items.toReversed(), firstPage!.items);
    });
  },
);

// Checks the statement's text, because only with millions of chats would a plan show that the index does not help.
it.each([
  ["ern", true],
  ["Größe", true],
  [" 1", true],
  ["zq", false],
  ["++", false],
])("a search for %j can use the trigram index: %s", (search, canUse) => {
  const { text } = byFilter(chatbot, { ...defaultChatQuery, search });
  assert.strictEqual(text.includes("folded_name like"), canUse);
});
