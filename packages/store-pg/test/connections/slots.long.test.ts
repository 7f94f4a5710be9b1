import { assert, it } from "@effect/vitest";
import { defaultChatQuery } from "@parley/core";
import { ChatStore, StoreState, TurnStore } from "@parley/core/ports";
import { registerChatbot } from "@parley/core/testing";
import { inspectPostgres, layerPostgres } from "@parley/store-pg";
import { Effect, Logger } from "effect";
import { bare, entry, takeFree } from "../fixtures.ts";
import { freshDatabase, superuserIn } from "../PostgresUnderTest.ts";

/** A new database whose connections can be limited. */
const limited = Effect.gen(function* () {
  const { disconnect, name, url } = yield* freshDatabase();
  const sql = yield* superuserIn(name);
  const limit = (slots: number) =>
    sql.unsafe(`alter database ${name} with connection limit ${slots}`);
  return { url, limit, disconnect };
});

const millisOf = Effect.fnUntraced(function* <A, E>(effect: Effect.Effect<A, E>) {
  const startedAt = performance.now();
  const result = yield* effect;
  return [result, performance.now() - startedAt] as const;
});

const becomes = (isWritable: boolean) =>
  StoreState.use(({ readOnlyReason }) => readOnlyReason).pipe(
    Effect.delay("20 millis"),
    Effect.repeat({ until: (reason) => (reason === null) === isWritable }),
    Effect.timeout("5 seconds"),
  );

it.live(
  "while all connections that PostgreSQL allows are in use, requests fail within a second with that cause, no ask gets a turn, and a finished answer is kept for five seconds",
  () => {
    const lines: Array<string> = [];
    const logger = Logger.make(({ message }) => void lines.push(String(message)));
    return Effect.gen(function* () {
      const { disconnect, limit, url } = yield* limited;
      yield* Effect.gen(function* () {
        const chatbot = yield* registerChatbot;
        const chats = yield* ChatStore;
        const turns = yield* TurnStore;
        const { chat } = yield* chats.createChat(chatbot, bare, null);
        const [lostTurn, turn] = [
          yield* takeFree(chatbot, null),
          yield* takeFree(chatbot, chat.id),
        ];
        yield* limit(0);
        yield* disconnect;
        // Even without a request, asks are refused before a model is called.
        yield* becomes(false);
        const refused: Readonly<Record<string, Effect.Effect<unknown, Error>>> = {
          take: turns.take(chatbot, null, null),
          create: chats.createChat(chatbot, bare, null),
          list: chats.listChats(chatbot, defaultChatQuery),
          release: turns.release(lostTurn, { apiKeyId: "k", tokens: 1 }),
        };
        for (const [name, request] of Object.entries(refused)) {
          const [error, millis] = yield* millisOf(Effect.flip(request));
          assert.include(error.message, "too many connections for database", name);
          assert.deepInclude(error as object, { reason: "no_connection" }, name);
          assert.isBelow(millis, 1_000, name);
        }
        const [, millis] = yield* millisOf(Effect.flip(turns.append(lostTurn, entry)));
        assert.isAbove(millis, 4_000);
        assert.isBelow(millis, 6_000);
        yield* Effect.all([turns.append(turn, entry), Effect.delay(limit(-1), "1 second")], {
          concurrency: 2,
        });
        yield* becomes(true);
        yield* refused["create"]!;
      }).pipe(Effect.provide(layerPostgres({ url })));
      const [refusal, recovery, ...others] = lines.filter((line) => line.includes("writes"));
      assert.include(refusal!, "The database refuses writes: too many connections for database");
      assert.strictEqual(recovery, "The database accepts writes again");
      assert.deepStrictEqual(others, []);
    }).pipe(Effect.provide(Logger.layer([logger])), Effect.scoped);
  },
);

it.live("a store that gets fewer connections than it wants works with those", () =>
  Effect.gen(function* () {
    const { limit, url } = yield* limited;
    yield* Effect.gen(function* () {
      const chatbots = yield* Effect.replicateEffect(registerChatbot, 8);
      const chats = yield* ChatStore;
      yield* limit(4);
      const create = (n: number) => chats.createChat(chatbots[n % 8]!, bare, null);
      yield* Effect.forEach(Array(200).keys(), create, { concurrency: 40 });
      assert.isNull(yield* StoreState.use(({ readOnlyReason }) => readOnlyReason));
    }).pipe(Effect.provide(layerPostgres({ url })));
  }).pipe(Effect.scoped),
);

it.live("a start and an inspection warn about a limit below the connections of two servers", () => {
  const warnings: Array<string> = [];
  const logger = Logger.make(({ message }) => void warnings.push(String(message)));
  const expected =
    "The database allows 23 connections. A Parley server opens up to 12, and a rolling restart runs two servers.";
  return Effect.gen(function* () {
    const { limit, url } = yield* limited;
    yield* limit(24);
    yield* Effect.provide(Effect.void, layerPostgres({ url }));
    assert.deepStrictEqual(warnings, []);
    yield* limit(23);
    yield* Effect.provide(Effect.void, layerPostgres({ url }));
    assert.deepStrictEqual(warnings, [expected]);
    assert.deepStrictEqual((yield* inspectPostgres({ url })).warnings, [expected]);
  }).pipe(Effect.provide(Logger.layer([logger])), Effect.scoped);
});
