import { assert, describe, it } from "@effect/vitest";
import { ChatArchive, ChatStore, newestChats, TurnStore } from "@parley/core";
import { registerChatbot } from "@parley/core/testing";
import { layerPostgres } from "@parley/store-pg";
import { Effect, Random, Schedule } from "effect";
import { Reactivity } from "effect/reactivity";
import { SqlError, type SqlClient } from "effect/sql";
import { anyByText, sortColumns } from "../src/ChatPages.ts";
import { makeClients, type Clients } from "../src/Clients.ts";
import { makeCreations } from "../src/Creations.ts";
import { milestoneBefore, setMilestonesBy, spacing } from "../src/Milestones.ts";
import { makeChatStore } from "../src/PgChatStore.ts";
import type { Session } from "../src/Session.ts";
import { buffers } from "./buffers.ts";
import { filledChatbot, fillChats } from "./fill.ts";
import { bound, clientOf, freshSchema, optionsOf } from "./PostgresUnderTest.ts";

const entry = { question: "q", answer: "a", moderation: "none", flagged: false, usage: null };
const fields = ["name", "userRef"] as const;
type Field = (typeof fields)[number];

const set = (sql: SqlClient.SqlClient, chatbot: number, apart: number) =>
  Effect.forEach(fields, (field) =>
    sql.unsafe(setMilestonesBy(sortColumns[field]), [chatbot, apart]),
  );

/** Of every so manyth first chat of a page, those that are read from a milestone, and whether that is where it says. */
const milestones = (sql: SqlClient.SqlClient, chatbot: number, field: Field, every = 1) =>
  sql.unsafe<{ readonly walked: number; readonly right: boolean }>(
    `with ordered as (
      select position, ${sortColumns[field]} as text,
        row_number() over (order by ${sortColumns[field]}, position) - 1 as rank
      from chat where chatbot_id = $1
    )
    select (first - milestone.rank)::int4 as walked,
      milestone.texts = (select count(text) from ordered) and coalesce(ordered.position = milestone.position, false)
        and ordered.text is not distinct from milestone.text as right
    from tally cross join generate_series(0, chats, ${every}) first
    cross join lateral (${milestoneBefore(sortColumns[field], "first")}) milestone
    left join ordered on ordered.rank = milestone.rank
    where tally.chatbot_id = $1`,
    [chatbot],
  );

/** The positions of a page, as the store reads it, and by skipping chats one by one. */
const bothWays = Effect.fnUntraced(function* (
  sql: SqlClient.SqlClient,
  chatbot: number,
  field: Field,
  page: { readonly descending: boolean; readonly limit: number; readonly page: number },
) {
  const { descending } = page;
  const { text, values } = anyByText(chatbot, { ...newestChats, ...page }, { field, descending });
  const direction = descending ? "desc" : "asc";
  const plainly = `select position from chat where chatbot_id = $1
    order by ${sortColumns[field]} ${direction}, position ${direction} offset $2 limit $3`;
  const [chatbotId, offset, limit] = values;
  return yield* Effect.all([
    Effect.map(sql.unsafe<{ readonly position: bigint | null }>(text, values), (rows) =>
      rows.filter(({ position }) => position !== null).map(({ position }) => position),
    ),
    Effect.map(
      sql.unsafe<{ readonly position: bigint }>(plainly, [chatbotId, offset, limit]),
      (rows) => rows.map(({ position }) => position),
    ),
  ]);
});

/** Up to which positions a chatbot's orders are known, as they are now. */
const known = (sql: SqlClient.SqlClient, chatbot: number) =>
  Effect.map(
    sql.unsafe<{ readonly reached: bigint }>(
      `select reached from milestone join tally using (chatbot_id, erasures)
      where chatbot_id = $1 and spacing = ${spacing}`,
      [chatbot],
    ),
    (rows) => rows.map(({ reached }) => Number(reached)),
  );

const seeds = [1, Date.now()] as const;

describe("milestones", () => {
  for (const seed of seeds) {
    it.live(`lead to the pages that skipping chats one by one leads to (seed ${seed})`, () => {
      const schema = freshSchema();
      return Effect.gen(function* () {
        const sql = yield* clientOf(schema, 1);
        const chatbot = yield* registerChatbot;
        const [store, archive] = [yield* ChatStore, yield* ChatArchive];
        // Few, so that many are alike; in some only the tie-breaker tells which is where.
        const textOrNone = Effect.map(Random.nextIntBetween(0, 20), (n) =>
          n < 5 ? null : `${"ab".repeat(n % 3)} ${Math.min(n, 15)}`,
        );
        const create = (many: number) =>
          Effect.forEach(
            Array.from({ length: many }),
            () =>
              Effect.flatMap(Effect.all({ name: textOrNone, userRef: textOrNone }), (texts) =>
                store.createChat(chatbot, { ...texts, helloMessage: null }, null),
              ),
            { concurrency: 50, discard: true },
          );
        let chats = 300;
        const check = (round: string, farthest: number) =>
          Effect.gen(function* () {
            for (const field of fields) {
              const found = yield* milestones(sql, chatbot, field, 3);
              if (farthest === 0) assert.deepStrictEqual(found, []);
              else assert.isAbove(found.length, 30);
              for (const { right, walked } of found) {
                assert.isTrue(right, round);
                assert.isAtLeast(walked, 0);
                assert.isBelow(walked, farthest);
              }
            }
            for (let n = 0; n < 80; n++) {
              const limit = [1, 2, 9, 100][yield* Random.nextIntBetween(0, 3)]!;
              const page = yield* Random.nextIntBetween(1, Math.ceil(chats / limit) + 1);
              const field = fields[yield* Random.nextIntBetween(0, 1)]!;
              const wanted = { limit, page, descending: yield* Random.nextBoolean };
              const [read, plainly] = yield* bothWays(sql, chatbot, field, wanted);
              assert.deepStrictEqual(read, plainly, JSON.stringify({ round, field, ...wanted }));
            }
          });
        yield* create(chats);
        yield* check("none", 0);
        yield* set(sql, chatbot, 7);
        yield* check("new", 7);
        yield* create(40);
        chats += 40;
        yield* check("before 40", 7 + 40);
        const { items } = yield* store.listChats(chatbot, { ...newestChats, limit: 100 });
        for (const at of [3, 50, 77]) {
          chats -= yield* archive.erase(chatbot, { _tag: "Chat", id: items[at]!.id });
        }
        chats -= yield* archive.erase(chatbot, { _tag: "UserRef", userRef: "abab 5" });
        yield* check("after erasures", 3 * 7 + 40);
        // As a server does that knows nothing of them.
        yield* sql.unsafe("update tally set erasures = erasures + 1 where chatbot_id = $1", [
          chatbot,
        ]);
        yield* check("void", 0);
        yield* set(sql, chatbot, 3);
        yield* check("anew", 3);
        yield* create(59);
        chats += 59;
        yield* set(sql, chatbot, 3);
        yield* check("not yet anew", 3 + 59);
        yield* create(1);
        yield* set(sql, chatbot, 3);
        yield* check("once more", 3);
      }).pipe(
        Random.withSeed(seed),
        Effect.provide(layerPostgres(optionsOf(schema))),
        Effect.scoped,
      );
    });
  }

  it.live("tell nothing wrong, and something, while chats are created and erased", () => {
    const schema = freshSchema();
    return Effect.gen(function* () {
      const [sql, another] = [yield* clientOf(schema, 1), yield* clientOf(schema, 4)];
      const chatbot = yield* registerChatbot;
      const [store, archive] = [yield* ChatStore, yield* ChatArchive];
      const create = Effect.gen(function* () {
        const n = yield* Random.nextIntBetween(1, 50);
        const name = n < 10 ? null : `${n}`;
        return yield* store.createChat(chatbot, { name, userRef: null, helloMessage: null }, null);
      });
      yield* Effect.replicateEffect(create, 200, { concurrency: 50, discard: true });
      const erase = Effect.gen(function* () {
        const page = yield* Random.nextIntBetween(1, 200);
        const { items } = yield* store.listChats(chatbot, { ...newestChats, limit: 1, page });
        for (const { id } of items) yield* archive.erase(chatbot, { _tag: "Chat", id });
      });
      yield* set(sql, chatbot, 1);
      const setAnew = set(another, chatbot, 1);
      const writers: ReadonlyArray<Effect.Effect<unknown, unknown>> = [
        create,
        erase,
        erase,
        setAnew,
        setAnew,
      ];
      for (const one of writers) {
        yield* Effect.forkScoped(Effect.forever(Effect.delay(one, 10)));
      }
      const happened = Effect.map(
        sql.unsafe<{ readonly positions: bigint; readonly erasures: bigint }>(
          "select positions, erasures from tally where chatbot_id = $1",
          [chatbot],
        ),
        ([tally]) => tally!,
      );
      const before = yield* happened;
      for (let n = 0; n < 400; n++) {
        const found = yield* milestones(sql, chatbot, "name", 10);
        // Nothing makes them void.
        assert.isAbove(found.length, 0);
        assert.deepStrictEqual(
          found.filter(({ right }) => !right),
          [],
        );
      }
      const after = yield* happened;
      assert.isAbove(Number(after.positions - before.positions), 10);
      assert.isAbove(Number(after.erasures - before.erasures), 10);
    }).pipe(Effect.provide(layerPostgres(optionsOf(schema))), Effect.scoped);
  });

  it.live("are asked for by a page when it is time, or when the page could not be read", () => {
    const options = { ...optionsOf(freshSchema()), maxConnections: 2 };
    return Effect.gen(function* () {
      const sql = yield* clientOf(options.schema, 1);
      const clients = yield* makeClients(options);
      let asked = 0;
      // Creations set none beside.
      const make = yield* makeCreations(clients, () => Effect.void);
      const storeOf = (clients: Clients) =>
        makeChatStore(clients, () => Effect.sync(() => asked++), make);
      const far = {
        ...newestChats,
        page: spacing,
        orderBy: [{ field: "name", descending: false }],
      } as const;
      const store = yield* storeOf(clients);
      const empty = yield* registerChatbot;
      assert.strictEqual((yield* store.listChats(empty, far)).total, 0);
      yield* fillChats(sql, filledChatbot, 20 * spacing - 1);
      yield* store.listChats(filledChatbot, far);
      assert.strictEqual(asked, 0);
      yield* store.createChat(
        filledChatbot,
        { name: null, userRef: null, helloMessage: null },
        null,
      );
      yield* store.listChats(filledChatbot, far);
      assert.strictEqual(asked, 1);
      yield* set(sql, filledChatbot, spacing);
      assert.strictEqual((yield* store.listChats(filledChatbot, far)).total, 20 * spacing);
      assert.strictEqual(asked, 1);
      const failing: Session["query"] = () =>
        Effect.fail(
          new SqlError.SqlError({
            reason: new SqlError.StatementTimeoutError({ cause: new Error("too long") }),
          }),
        );
      const slow = yield* storeOf({ ...clients, passes: { ...clients.passes, query: failing } });
      yield* Effect.flip(slow.listChats(filledChatbot, far));
      assert.strictEqual(asked, 2);
    }).pipe(Effect.provide([layerPostgres(options), Reactivity.layer]), Effect.scoped);
  });

  for (const rowSecurity of [false, true]) {
    it.live(
      `are set when so many chats were created, imported or are passed${rowSecurity ? ", also below row security" : ""}`,
      () => {
        const options = { ...optionsOf(freshSchema()), ...(rowSecurity ? bound() : {}) };
        return Effect.gen(function* () {
          const sql = yield* clientOf(options.schema, 1);
          const [store, archive] = [yield* ChatStore, yield* ChatArchive];
          const chats = 20 * spacing;
          const soon = known(sql, filledChatbot).pipe(
            Effect.repeat({
              until: (reached) => reached.length === 2,
              schedule: Schedule.spaced(20),
            }),
            Effect.timeout("20 seconds"),
          );
          yield* fillChats(sql, filledChatbot, chats - 1);
          assert.deepStrictEqual(yield* known(sql, filledChatbot), []);
          const unnamed = { name: null, userRef: null, helloMessage: null };
          const { chat } = yield* store.createChat(filledChatbot, unnamed, null);
          assert.deepStrictEqual(yield* soon, [chats, chats]);
          // As the store's own client plans, and nobody told the planner how many chats there are.
          yield* sql.unsafe("set enable_seqscan = off");
          yield* sql.unsafe("set enable_bitmapscan = off");
          for (const field of fields) {
            const text = setMilestonesBy(sortColumns[field]);
            const touched = yield* buffers(
              sql,
              { text, values: [filledChatbot, spacing] },
              "force_custom_plan",
            );
            assert.isAtMost(touched, 20, "when it is not time");
          }

          yield* archive.erase(filledChatbot, { _tag: "Chat", id: chat.id });
          assert.deepStrictEqual(yield* known(sql, filledChatbot), [chats, chats]);

          yield* sql.unsafe("delete from milestone");
          yield* store.listChats(filledChatbot, {
            ...newestChats,
            page: chats / 50,
            orderBy: [{ field: "name", descending: false }],
          });
          assert.deepStrictEqual(yield* soon, [chats, chats]);

          const another = yield* registerChatbot;
          yield* store.createChat(filledChatbot, unnamed, null);
          yield* archive.import(another, archive.export(filledChatbot));
          assert.deepStrictEqual(yield* known(sql, another), [chats, chats]);

          // An ask may make the chat, too.
          const turns = yield* TurnStore;
          yield* sql.unsafe("delete from milestone");
          yield* sql.unsafe("update tally set positions = positions + $1 where chatbot_id = $2", [
            spacing - 2,
            filledChatbot,
          ]);
          const retryKey = { key: "key", fingerprint: "f" };
          const asked = yield* turns.take(filledChatbot, null, retryKey);
          if (asked._tag === "Turn") yield* turns.append(asked.turn, entry);
          assert.deepStrictEqual(yield* soon, [chats + spacing, chats + spacing]);
        }).pipe(Effect.provide(layerPostgres(options)), Effect.scoped);
      },
    );
  }
});
