import { assert, layer } from "@effect/vitest";
import { ChatArchive, newest, newestChats, type ChatQuery, type EntryQuery } from "@parley/core";
import { layerPostgres } from "@parley/store-pg";
import { Context, Effect, Layer } from "effect";
import type { SqlClient, SqlError } from "effect/sql";
import { seek } from "../src/ChatPages.ts";
import {
  countMatches,
  filteredPage,
  gatheredPage,
  rememberedPage,
  walkedPage,
} from "../src/MatchingPages.ts";
import { indexedIn, type Searching } from "../src/Searching.ts";
import { anyEntries, seekEntries } from "../src/EntryPages.ts";
import { type Statement } from "../src/Pages.ts";
import {
  eraseEvery,
  fillChats,
  fillEntries,
  filledChatbot as chatbot,
  fillThinned,
  settle,
} from "./fill.ts";
import { buffers, executed } from "./buffers.ts";
import { bound, clientOf, freshDatabase, inDatabase, layerStore } from "./PostgresUnderTest.ts";

const chats = 100_000;
const most = 200;

class Filled extends Context.Service<
  Filled,
  {
    readonly sql: SqlClient.SqlClient;
    /** Bound by row security to a chatbot. */
    readonly boundTo: (chatbot: number) => Effect.Effect<SqlClient.SqlClient, SqlError.SqlError>;
  }
>()("Filled") {}

const fill = ({ name, sql }: Effect.Success<ReturnType<typeof freshDatabase>>) =>
  Effect.gen(function* () {
    yield* fillChats(sql, chatbot, chats);
    yield* fillEntries(sql, chatbot, chats);
    yield* settle(sql);
    const roleUrl = inDatabase(name, bound().url);
    yield* Effect.provide(Effect.void, layerStore({ ...bound(), url: roleUrl }));
    const role = yield* clientOf("parley", 1, roleUrl);
    const boundTo = (to: number) =>
      Effect.as(role.unsafe("select set_config('parley.chatbot', $1, false)", [String(to)]), role);
    return { sql, boundTo };
  });

/** In a database of its own: VACUUM leaves what others in the same one may still read. */
const filled = Layer.unwrap(
  Effect.map(freshDatabase(), (database) =>
    Layer.effect(Filled, fill(database)).pipe(
      Layer.provideMerge(layerPostgres({ url: database.url })),
    ),
  ),
);

const query = (more: Partial<ChatQuery> = {}): ChatQuery => ({ ...newestChats, ...more });
const entries = (more: Partial<EntryQuery> = {}): EntryQuery => ({ ...newest, ...more });

const pages = [1, 2, 5, 6, 7, chats / 50, chats / 25, chats / 25 + 1, Number.MAX_SAFE_INTEGER];
const byId = (descending: boolean) => [{ field: "id", descending }] as const;

/** The lists whose cost must not grow, by name. */
const flat: ReadonlyArray<readonly [string, Statement, "force_custom_plan"?]> = [
  ...pages.flatMap((page) =>
    [true, false].flatMap((descending) => [
      [
        `page ${page}${descending ? ", newest first" : ""}`,
        seek(chatbot, query({ page }), descending),
      ] as const,
      [
        `history page ${page}${descending ? ", newest first" : ""}`,
        seekEntries(chatbot, 1, entries({ page }), descending),
      ] as const,
    ]),
  ),
  ...[1, 2, 100].flatMap((page) =>
    [true, false].map(
      (descending) =>
        [
          `page ${page} of a user${descending ? ", newest first" : ""}`,
          filteredPage(
            chatbot,
            query({ userRef: "user 500", page, orderBy: byId(descending) }),
            undefined,
            { atMost: 10_000 },
          ),
        ] as const,
    ),
  ),
  ["one chat by its id", filteredPage(chatbot, query({ id: 77_777 }), undefined)],
  ["no chat by its id", filteredPage(chatbot, query({ id: 777_777 }), undefined)],
  ["one entry by its id", anyEntries(chatbot, 1, entries({ id: 77_777 }))],
];

/** Any page of the chatbot's chats touches few buffers, also below row security. */
const pagesAreFlat = Effect.fnUntraced(function* (chatbot: number) {
  const { boundTo, sql } = yield* Filled;
  yield* settle(sql);
  for (const page of pages) {
    for (const descending of [true, false]) {
      const statement = seek(chatbot, query({ page }), descending);
      assert.isAtMost(yield* buffers(sql, statement), most);
      assert.isAtMost(yield* buffers(yield* boundTo(chatbot), statement), most);
    }
  }
});

/** The pass of a search. */
const foundFor = (search: string): Statement =>
  gatheredPage(chatbot, query({ search }), true, { from: "chat", indexed: indexedIn("C.UTF-8") });

layer(filled, { timeout: "2 minutes" })("lists of 100,000 rows touch at most 200 buffers", (it) => {
  for (const [name, statement, mode] of flat) {
    it.effect(name, () =>
      Effect.gen(function* () {
        const { boundTo, sql } = yield* Filled;
        assert.isAtMost(yield* buffers(sql, statement, mode), most);
        assert.isAtMost(yield* buffers(yield* boundTo(chatbot), statement, mode), most);
      }),
    );
  }

  for (const search of ["falcon 77777", "привет", "qx zw", "o'n", "a.b.c", "हिन्दी", "ที่นี่", "۱۲۳۴"]) {
    it.effect(`a search for ${search} is one in the index`, () =>
      Effect.gen(function* () {
        const { sql } = yield* Filled;
        assert.isAtMost(yield* buffers(sql, foundFor(search), "force_custom_plan"), most);
      }),
    );
  }

  for (const search of ["zq", "é", "c++", "++ ++", "日本", "🙂🙂🙂"]) {
    it.effect(
      `a search for ${search}, of which the index knows no part, reads the names once`,
      () =>
        Effect.gen(function* () {
          const { sql } = yield* Filled;
          const [table] = yield* sql.unsafe<{ readonly pages: number }>(
            "select relpages as pages from pg_class where oid = 'chat'::regclass",
          );
          const statement = gatheredPage(chatbot, query({ search }), true, {
            from: "chat",
            indexed: indexedIn("C.UTF-8"),
          });
          assert.isBelow(yield* buffers(sql, statement, "force_custom_plan"), table!.pages + most);
        }),
    );
  }

  it.effect("a search reads as little when row security binds it", () =>
    Effect.gen(function* () {
      const { boundTo, sql } = yield* Filled;
      const role = yield* boundTo(chatbot);
      const inAscii = indexedIn("C");
      const all = countMatches(
        chatbot,
        { search: "lantern", userRef: null },
        { from: "chat", indexed: inAscii },
      );
      const [first] = yield* sql.unsafe<{ readonly edition: string }>(all.text, all.values);
      const known = {
        matching: chats / 7,
        reached: chats,
        edition: first!.edition,
        newest: null,
        oldest: null,
      };
      const statements: ReadonlyArray<(searching: Searching) => Statement> = [
        (searching) => gatheredPage(chatbot, query({ search: "falcon 77777" }), true, searching),
        (searching) =>
          walkedPage(chatbot, query({ search: "lantern", page: 50 }), known, true, searching),
        // Looks through the newest for what is nowhere.
        (searching) => countMatches(chatbot, { search: "falcon 77777", userRef: null }, searching),
      ];
      for (const statement of statements) {
        const free = yield* buffers(
          sql,
          statement({ from: "chat", indexed: inAscii }),
          "force_custom_plan",
        );
        assert.isBelow(free, 1_000);
        const read = yield* buffers(
          role,
          statement({ from: "own_chat", indexed: inAscii }),
          "force_custom_plan",
        );
        assert.isAtMost(read, free + 10);
      }
    }),
  );

  for (const [what, erase] of [
    [
      "users were erased",
      () =>
        ChatArchive.use((archive) =>
          Effect.forEach([3, 77, 500, 501, 999], (user) =>
            archive.erase(chatbot, { _tag: "UserRef", userRef: `user ${user}` }, "test"),
          ),
        ),
    ],
    ["one chat in 97 was erased, too", (sql) => eraseEvery(sql, chatbot, 97)],
  ] satisfies ReadonlyArray<
    readonly [string, (sql: SqlClient.SqlClient) => Effect.Effect<unknown, unknown, ChatArchive>]
  >) {
    it.effect(`pages stay flat after ${what}`, () =>
      Effect.gen(function* () {
        const { sql } = yield* Filled;
        yield* erase(sql);
        yield* pagesAreFlat(chatbot);
      }),
    );
  }

  it.effect("pages stay flat when nearly all of ten million chats were erased", () =>
    Effect.gen(function* () {
      const { sql } = yield* Filled;
      const thinned = chatbot + 1;
      yield* fillThinned(sql, thinned, 10_000_000);
      yield* pagesAreFlat(thinned);
    }),
  );

  it.effect(
    "lists with filters stay flat in a chatbot of which nobody told the planner, and when what matches is scattered",
    () =>
      Effect.gen(function* () {
        const { boundTo, sql } = yield* Filled;
        const grown = chatbot + 3;
        yield* fillChats(sql, grown, chats);
        yield* sql.unsafe(
          "update chat set user_ref = 'scattered' where chatbot_id = $1 and position % 300 = 0",
          [grown],
        );
        const indexed = indexedIn("C.UTF-8");
        const first = countMatches(
          grown,
          { search: "lantern", userRef: null },
          { from: "chat", indexed },
        );
        const [row] = yield* sql.unsafe<any>(first.text, first.values);
        const known = { ...row, matching: Number(row.total), reached: Number(row.reached) };
        const search = (more: Partial<ChatQuery>) => query({ search: "lantern", ...more });
        const passing = (from: Searching["from"]): ReadonlyArray<Statement> => [
          rememberedPage(grown, search({}), known, true, { from, indexed }),
          rememberedPage(grown, search({ limit: 100 }), known, true, { from, indexed }),
          rememberedPage(grown, search({ limit: 100 }), { ...known, oldest: known.newest }, false, {
            from,
            indexed,
          }),
          walkedPage(grown, search({}), known, true, { from, indexed }),
        ];
        const reading = [25, 100].flatMap((limit) => [
          filteredPage(grown, query({ userRef: "scattered", limit }), undefined, {
            atMost: 10_000,
          }),
          filteredPage(grown, query({ userRef: "user 7", limit }), undefined, { atMost: 10_000 }),
          filteredPage(grown, query({ id: 77_777, userRef: "user 777", limit }), undefined),
        ]);
        // Without the visibility map each row that is counted is looked at.
        for (const limit of [3 * most, most]) {
          const role = yield* boundTo(grown);
          for (const [connection, from] of [
            [sql, "chat"],
            [role, "own_chat"],
          ] as const) {
            for (const statement of passing(from)) {
              const touched = yield* buffers(connection, statement, "force_custom_plan");
              // A row that is looked up takes a few.
              assert.isAtMost(touched, 3 * most, statement.text);
            }
            for (const statement of reading) {
              assert.isAtMost(yield* buffers(connection, statement), limit, statement.text);
            }
          }
          yield* settle(sql);
        }
      }),
  );

  it.effect("an entry is found by its id in a chat that grew since the planner was told", () =>
    Effect.gen(function* () {
      const { sql } = yield* Filled;
      const small = chatbot + 4;
      yield* fillChats(sql, small, 2);
      yield* sql.unsafe(
        `insert into entry (chatbot_id, chat_id, id, position, question, answer, moderation, flagged, create_time)
        select $1, 1, 1000000 + n, n, '', '', 'none', false, now() from generate_series(1, 50000) n`,
        [small],
      );
      const statement = anyEntries(small, 1, entries({ id: 1_049_000 }));
      assert.isAtMost(yield* buffers(sql, statement), most);
    }),
  );

  for (const field of ["answer", "flagged"] as const) {
    it.effect(`a history by ${field} sorts no more rows than it gives`, () =>
      Effect.gen(function* () {
        const { sql } = yield* Filled;
        const statement = anyEntries(
          chatbot,
          1,
          entries({ orderBy: [{ field, descending: true }] }),
        );
        const plan = yield* executed(sql, statement, "force_custom_plan");
        assert.strictEqual(plan["Temp Written Blocks"], 0);
      }),
    );
  }
});
