import { assert, describe, it } from "@effect/vitest";
import {
  ChatArchive,
  newest,
  newestChats,
  type Chat,
  type ChatQuery,
  type Page,
} from "@parley/core";
import { registerChatbot } from "@parley/core/testing";
import { layerPostgres } from "@parley/store-pg";
import { Context, Effect, Fiber, Latch, Layer } from "effect";
import { Reactivity } from "effect/reactivity";
import { SqlError } from "effect/sql";
import { TestClock } from "effect/testing";
import { makePools } from "../src/database/PgPools.ts";
import { walk } from "../src/MatchingPages.ts";
import { makeChatCreation } from "../src/chats/ChatCreation.ts";
import { makeChatStore } from "../src/PgChatStore.ts";
import type { Session, Tenant } from "../src/database/TenantSession.ts";
import { clientOf, freshSchema, optionsOf } from "./PostgresUnderTest.ts";

/**
 * A store whose statements that read much stand at a gate and are noted; the first `failing` of them fail, as if the
 * connection was lost if nothing else is said.
 */
const makeGated = Effect.fnUntraced(function* (failing = 0, few = 0, failure = lost) {
  const options = optionsOf(freshSchema());
  const layer = yield* Layer.build(layerPostgres(options));
  const clients = yield* makePools({ ...options, maxConnections: 4 }).pipe(
    Effect.provide(Reactivity.layer),
  );
  const gate = yield* Latch.make();
  const seen = { statements: 0, passes: 0, gathered: 0, running: 0, most: 0, countedFrom: 0n };
  const passesOf: Array<Tenant> = [];
  const query: Session["query"] = (subject, text, values) =>
    Effect.suspend(() => {
      seen.most = Math.max(seen.most, ++seen.running);
      if (text.includes("with recent as")) seen.passes = passesOf.push(subject);
      else if (text.includes("with matching as")) seen.gathered++;
      const from = /position > \$(\d+)/.exec(text);
      if (from !== null) seen.countedFrom = BigInt(values![Number(from[1]) - 1] as number);
      const fails = ++seen.statements <= failing;
      return Effect.andThen(
        gate.await,
        fails ? Effect.fail(failure) : clients.bulk.query<any>(subject, text, values),
      );
    }).pipe(Effect.ensuring(Effect.sync(() => seen.running--)));
  const store = yield* makeChatStore(
    { ...clients, bulk: { ...clients.bulk, query } },
    yield* makeChatCreation(clients),
    { few },
  );
  const chatbot = yield* Effect.provideContext(registerChatbot, layer);
  const create = (count: number) =>
    Effect.forEach(Array.from({ length: count }), (_, n) =>
      Effect.map(
        store.createChat(chatbot, { name: `needle ${n}`, userRef: "u", helloMessage: "Hi" }, null),
        ({ chat }) => chat,
      ),
    );
  const chats = yield* create(60);
  const list = (query: Partial<ChatQuery>) =>
    store.listChats(chatbot, { ...newestChats, ...query });
  const empty = yield* Effect.provideContext(registerChatbot, layer);
  const without = (query: Partial<ChatQuery>) =>
    store.listChats(empty, { ...newestChats, ...query });
  const history = store.listEntries(chatbot, chats[0]!.id, newest);
  const byAnswer = (chat: number) =>
    store.listEntries(chatbot, chats[chat]!.id, {
      ...newest,
      orderBy: [{ field: "answer", descending: false }],
    });
  const archive = Context.get(layer, ChatArchive);
  const erase = archive.erase(chatbot, { _tag: "Chat", id: chats[0]!.id }, "test");
  /** Waits until so many statements are under way, and nothing else would begin. */
  const running = (count: number) =>
    Effect.repeat(
      Effect.promise(() => new Promise((done) => setTimeout(done, 20))),
      {
        until: () => seen.running === count,
        times: 250,
      },
    );
  return {
    chats,
    create,
    empty,
    erase,
    gate,
    byAnswer,
    history,
    list,
    passesOf,
    running,
    schema: options.schema,
    seen,
    without,
  };
});

const lost = new SqlError.SqlError({
  reason: new SqlError.ConnectionError({ cause: new Error("lost") }),
});

const tooLong = new SqlError.SqlError({
  reason: new SqlError.StatementTimeoutError({ cause: new Error("too long") }),
});

/** Begins them all, each up to where it waits. */
const begun = <A, E, R>(
  n: number,
  effect: (at: number) => Effect.Effect<A, E, R>,
): Effect.Effect<ReadonlyArray<Fiber.Fiber<A, E>>, never, R> =>
  Effect.forEach(
    Array.from({ length: n }, (_, at) => at),
    (at) => Effect.forkChild(effect(at), { startImmediately: true }),
  ).pipe(Effect.tap(Effect.yieldNow));

const totals = (pages: ReadonlyArray<Page<Chat>>) => new Set(pages.map(({ total }) => total));

const byName = [{ field: "name", descending: false }] as const;

describe("searches that arrive together", () => {
  it.effect("share one pass when they are equal, whatever their pages", () =>
    Effect.gen(function* () {
      const { gate, list, seen } = yield* makeGated();
      const fibers = yield* begun(20, (n) => list({ search: "needle", page: 1 + (n % 3) }));
      assert.strictEqual(seen.statements, 1);
      yield* gate.open;
      const pages = yield* Fiber.joinAll(fibers);
      assert.deepStrictEqual(totals(pages), new Set([60]));
      assert.strictEqual(pages[2]!.items.at(-1)!.name, "needle 0");
      // What follows is read from what the pass found.
      assert.strictEqual(seen.statements, 21);
    }),
  );

  it.effect("share one pass for the count and one for the page in another order", () =>
    Effect.gen(function* () {
      const { gate, list, seen } = yield* makeGated();
      yield* gate.open;
      const fibers = yield* begun(20, () => list({ search: "needle", orderBy: byName }));
      const pages = yield* Fiber.joinAll(fibers);
      assert.deepStrictEqual(totals(pages), new Set([60]));
      assert.strictEqual(seen.statements, 2);
    }),
  );

  it.effect("join no pass that has begun, which knows nothing of what was written since", () =>
    Effect.gen(function* () {
      const { gate, list, seen } = yield* makeGated();
      const fibers = yield* begun(1, () => list({ orderBy: byName }));
      assert.strictEqual(seen.statements, 1);
      const later = yield* begun(1, () => list({ orderBy: byName }));
      assert.strictEqual(seen.statements, 2);
      const waiting = yield* begun(5, () => list({ orderBy: byName }));
      yield* gate.open;
      yield* Fiber.joinAll([...fibers, ...later, ...waiting]);
      assert.strictEqual(seen.statements, 3);
    }),
  );

  it.effect("do not depend on the one that came first", () =>
    Effect.gen(function* () {
      const { gate, list, seen } = yield* makeGated();
      const [first, ...others] = yield* begun(20, () => list({ search: "needle" }));
      yield* Fiber.interrupt(first!);
      yield* gate.open;
      assert.deepStrictEqual(totals(yield* Fiber.joinAll(others)), new Set([60]));
      assert.strictEqual(seen.statements, 1 + others.length);
    }),
  );

  it.effect("end their pass when none of them waits any more", () =>
    Effect.gen(function* () {
      const { list, seen } = yield* makeGated();
      const fibers = yield* begun(3, () => list({ search: "needle" }));
      assert.strictEqual(seen.running, 1);
      yield* Fiber.interruptAll(fibers);
      assert.strictEqual(seen.running, 0);
    }),
  );

  it.effect("try again when the pass of the first failed", () =>
    Effect.gen(function* () {
      const { gate, list } = yield* makeGated(1);
      const [first, ...others] = yield* begun(20, () => list({ search: "needle" }));
      yield* gate.open;
      assert.strictEqual((yield* Effect.flip(Fiber.join(first!)))._tag, "StorageUnavailable");
      assert.deepStrictEqual(totals(yield* Fiber.joinAll(others)), new Set([60]));
    }),
  );

  it.effect("and differ run two at a time, and no other list waits for them", () =>
    Effect.gen(function* () {
      const { gate, history, list, seen } = yield* makeGated();
      const fibers = yield* begun(20, (n) => list({ search: `needle ${n}` }));
      assert.strictEqual(seen.running, 2);
      for (const query of [{}, { page: 3 }, { userRef: "u" }, { id: 1 }, { userRef: "nobody" }]) {
        yield* list(query);
      }
      assert.strictEqual((yield* history).total, 1);
      yield* TestClock.adjust("1 second");
      const refused = yield* Effect.forEach(fibers.slice(2), (fiber) =>
        Effect.flip(Fiber.join(fiber)),
      );
      assert.deepStrictEqual(new Set(refused.map(({ _tag }) => _tag)), new Set(["Overloaded"]));
      yield* gate.open;
      const answered = yield* Fiber.joinAll(fibers.slice(0, 2));
      assert.deepStrictEqual(
        answered.map(({ total }) => total),
        [1, 11],
      );
      assert.strictEqual(seen.most, 2);
    }),
  );

  it.effect("of one chatbot come in turn with those of another", () =>
    Effect.gen(function* () {
      const { empty, gate, list, passesOf, without } = yield* makeGated();
      const crowd = yield* begun(20, (n) => list({ search: `needle ${n}` }));
      const [other] = yield* begun(1, () => without({ search: "needle" }));
      yield* gate.open;
      yield* Fiber.joinAll([...crowd, other!]);
      assert.include(passesOf.slice(0, 4), empty);
    }),
  );

  it.effect("leave two places to pages in the order of names or references", () =>
    Effect.gen(function* () {
      const { list, seen } = yield* makeGated();
      yield* begun(20, (n) => list({ search: `needle ${n}` }));
      yield* begun(20, (n) => list({ orderBy: byName, page: n + 1 }));
      assert.strictEqual(seen.running, 4);
      yield* begun(1, () => list({ orderBy: [{ field: "userRef", descending: true }] }));
      assert.strictEqual(seen.running, 4);
    }),
  );

  it.effect(
    "leave four places to those of chatbots with few chats, and histories with few entries",
    () =>
      Effect.gen(function* () {
        const { byAnswer, chats, list, running, schema, seen, without } = yield* makeGated(0, 50);
        const sql = yield* clientOf(schema, 1);
        yield* sql.unsafe("update chat set entries = 6 where id = $1::int8", [chats[1]!.id]);
        const byNameToo = [{ field: "_createTime", descending: true }, ...byName] as const;
        yield* begun(20, (n) =>
          list(n % 2 === 0 ? { search: `n ${n}` } : { orderBy: byNameToo, page: n }),
        );
        yield* running(2);
        // One with its hello entry alone, and one with more.
        yield* begun(2, byAnswer);
        yield* running(3);
        const few = yield* begun(20, (n) =>
          without(n % 2 === 0 ? { search: `n ${n}` } : { orderBy: byNameToo, page: n }),
        );
        yield* running(6);
        yield* TestClock.adjust("1 second");
        assert.strictEqual(seen.most, 6);
        const refused = few.filter((fiber) => fiber.pollUnsafe()?._tag === "Failure");
        assert.strictEqual(refused.length, 17);
      }),
  );

  it.effect("that take too long are refused", () =>
    Effect.gen(function* () {
      const { gate, list } = yield* makeGated(1, 0, tooLong);
      yield* gate.open;
      assert.strictEqual((yield* Effect.flip(list({ search: "needle" })))._tag, "Overloaded");
    }),
  );

  it.effect("are not waited for by a user's list that an erasure made void", () =>
    Effect.gen(function* () {
      const { create, erase, list, seen } = yield* makeGated();
      // So many that their count is remembered.
      yield* create(500);
      assert.strictEqual((yield* list({ userRef: "u" })).total, 560);
      yield* begun(2, (n) => list({ search: `needle ${n}` }));
      assert.strictEqual(seen.running, 2);
      yield* erase;
      assert.strictEqual((yield* list({ userRef: "u" })).total, 559);
      assert.strictEqual(seen.statements, 2);
    }),
  );

  for (const [what, query] of [
    ["pages of the newest", {}],
    ["pages of the oldest", { orderBy: [{ field: "id", descending: false }] }],
    ["deep pages", { page: 40, limit: 1 }],
    ["pages in another order", { orderBy: byName }],
  ] as const) {
    it.effect(`count on from where the last stopped: ${what}`, () =>
      Effect.gen(function* () {
        const { create, gate, list, seen } = yield* makeGated();
        yield* gate.open;
        const search = { search: "needle", ...query };
        yield* list(search);
        yield* create(1);
        assert.strictEqual((yield* list(search)).total, 61);
        yield* create(2);
        assert.strictEqual((yield* list(search)).total, 63);
        assert.strictEqual(seen.countedFrom, 61n);
        // What came since is among the newest, too.
        const newest = yield* list({ search: "needle", limit: 5 });
        assert.deepStrictEqual(
          newest.items.map(({ name }) => name),
          ["needle 1", "needle 0", "needle 0", "needle 59", "needle 58"],
        );
      }),
    );
  }

  // What many of the newest match is not looked for among all.
  for (const [count, gathered, matching] of [
    [1, 0, "few"],
    [230, 1, "many"],
  ] as const) {
    it.effect(`of ${matching} among very many make one pass for either end`, () =>
      Effect.gen(function* () {
        const { create, gate, list, schema, seen } = yield* makeGated();
        const sql = yield* clientOf(schema, 1);
        yield* gate.open;
        yield* create(count);
        // Too far apart to be met on a walk.
        const scatter = sql.unsafe(
          "update chat set position = position * 1000000 where position < 1000000",
        );
        yield* scatter;
        yield* sql.unsafe("update chat_counter set positions = 1000000000");
        const positions = [{ field: "id", descending: false }] as const;
        const names = (query: Partial<ChatQuery>) =>
          Effect.map(list({ search: "needle", limit: 7, ...query }), ({ items, total }) => [
            total,
            ...items.map(({ id }) => id),
          ]);
        const all = yield* sql.unsafe<{ readonly id: bigint }>(
          "select id from chat where name like 'needle%' order by position",
        );
        const ids = all.map(({ id }) => Number(id));
        const is = Effect.fnUntraced(function* () {
          for (const page of [1, 3]) {
            const [from, to] = [7 * (page - 1), 7 * page];
            assert.deepStrictEqual(yield* names({ page, orderBy: positions }), [
              ids.length,
              ...ids.slice(from, to),
            ]);
            assert.deepStrictEqual(yield* names({ page }), [
              ids.length,
              ...ids.toReversed().slice(from, to),
            ]);
          }
        });
        yield* is();
        assert.deepStrictEqual([seen.passes, seen.gathered], [1, gathered]);
        // They are counted on, and seen from either end.
        for (const later of [2, 210]) {
          const more = yield* create(later);
          ids.push(...more.map(({ id }) => id));
          yield* is();
          assert.deepStrictEqual([seen.passes, seen.gathered], [1, gathered]);
        }
      }),
    );
  }

  it.effect("of a chatbot without chats make one pass, and none later", () =>
    Effect.gen(function* () {
      const { gate, seen, without } = yield* makeGated();
      yield* gate.open;
      for (let n = 0; n < 3; n++) {
        assert.deepStrictEqual(yield* without({ search: "needle" }), { total: 0, items: [] });
      }
      assert.strictEqual(seen.passes, 1);
    }),
  );

  it.effect("make another pass when very many chats came since", () =>
    Effect.gen(function* () {
      const { gate, list, schema, seen } = yield* makeGated();
      const sql = yield* clientOf(schema, 1);
      yield* gate.open;
      for (const [later, passes] of [
        [0, 1],
        [walk, 1],
        [walk + 1, 2],
        [walk + 1, 3],
      ] as const) {
        yield* sql.unsafe("update chat_counter set positions = positions + $1::int8", [later]);
        assert.strictEqual((yield* list({ search: "needle" })).total, 60);
        assert.strictEqual(seen.passes, passes);
      }
    }),
  );
});
