import { assert, it } from "@effect/vitest";
import { newest, newestChats, type ChatQuery, type EntryQuery } from "@parley/core";
import { layerPostgres } from "@parley/store-pg";
import { Effect, Fiber, Layer } from "effect";
import { makeListChats } from "../src/chats/ChatListing.ts";
import { indexedIn } from "../src/chats/ChatSearch.ts";
import { makeListEntries } from "../src/chats/EntryListing.ts";
import { makeReads } from "../src/chats/Paging.ts";
import { makePools } from "../src/database/PgPools.ts";
import { fillChats, filledChatbot as chatbot, fillEntries } from "./fill.ts";
import { clientOf, freshSchema, optionsOf } from "./PostgresUnderTest.ts";

const by = <Field extends string>(field: Field) => ({ field, descending: false });
const byAnswer = { orderBy: [by("answer")] } as const;

const quickChats: ReadonlyArray<Partial<ChatQuery>> = [
  {},
  { page: 400, orderBy: [by("_createTime")] },
  { id: 7, search: "lantern", orderBy: [by("name")] },
  { userRef: "user 7" },
  { userRef: "many", page: 2 },
];
const bulkChats: ReadonlyArray<readonly [Partial<ChatQuery>, total: number]> = [
  [{ search: "nowhere" }, 0],
  [{ userRef: "very many" }, 10_001],
  [{ userRef: "user 7", orderBy: [by("name")] }, 90],
  [{ orderBy: [by("name")] }, 30_000],
  [{ orderBy: [by("userRef"), by("name")] }, 30_000],
];

it.live(
  "a list that reads much waits for one of two connections until it is refused; no other list waits for it",
  () => {
    const options = optionsOf(freshSchema());
    return Effect.gen(function* () {
      yield* Layer.build(layerPostgres(options));
      const sql = yield* clientOf(options.schema, 1);
      yield* fillChats(sql, chatbot, 30_000);
      yield* fillEntries(sql, chatbot, 1_001);
      yield* sql.unsafe(
        "update chat set user_ref = case when id > 20000 then 'many' else 'very many' end where id > 9999 and id <= 30000",
      );
      const pools = yield* makePools({ ...options, maxConnections: 6 }, { bulkDeadline: 200 });
      const reads = makeReads(pools);
      const listChats = makeListChats(reads, { from: "chat", indexed: indexedIn("C") });
      const chats = (query: Partial<ChatQuery>) => listChats(chatbot, { ...newestChats, ...query });
      const history = (chat: number, query: Partial<EntryQuery> = {}) =>
        makeListEntries(reads)(chatbot, chat, { ...newest, ...query });
      const totalOf = <E>(list: Effect.Effect<{ readonly total: number }, E>) =>
        Effect.map(list, ({ total }) => total);
      const slow = [
        ...bulkChats.map(([query, total]) => [totalOf(chats(query)), total] as const),
        [totalOf(history(1, byAnswer)), 1_001] as const,
      ];

      const holding = yield* Effect.forkChild(
        Effect.forEach([1, 2], () => pools.operations.transaction(chatbot, Effect.never), {
          concurrency: 2,
        }),
        { startImmediately: true },
      );
      for (const query of quickChats) yield* chats(query);
      assert.strictEqual((yield* history(1)).total, 1_001);
      assert.strictEqual((yield* history(2, byAnswer)).total, 0);
      for (const [list] of slow) {
        assert.strictEqual((yield* Effect.flip(list))._tag, "Overloaded");
      }
      yield* Fiber.interrupt(holding);
      for (const [list, total] of slow) assert.strictEqual(yield* list, total);
    });
  },
);
