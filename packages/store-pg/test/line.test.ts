import { assert, describe, it } from "@effect/vitest";
import { ChatStore, TurnStore } from "@parley/core";
import { registerChatbot } from "@parley/core/testing";
import { layerPostgres } from "@parley/store-pg";
import { Context, Effect, Layer, Stream } from "effect";
import { blocked } from "./Blocked.ts";
import { clientOf, freshSchema, optionsOf } from "./PostgresUnderTest.ts";

/** Another instance over the same data. */
const anotherOver = (schema: string) =>
  Effect.map(Layer.build(Layer.fresh(layerPostgres(optionsOf(schema)))), (built) =>
    Context.get(built, TurnStore),
  );

/** A chat of a chatbot of its own. */
const newChat = Effect.gen(function* () {
  const chatbot = yield* registerChatbot;
  const { chat } = yield* ChatStore.use((store) =>
    store.createChat(chatbot, { name: null, userRef: null, helloMessage: null }, null),
  );
  return { chat, chatbot };
});

describe("the line of a chat", () => {
  it.live("tells the first in it to ask again at once if the turn ended while it came", () => {
    const schema = freshSchema();
    return Effect.gen(function* () {
      const sql = yield* clientOf(schema, 1);
      const { chat, chatbot } = yield* newChat;
      const [first, second, third] = [
        yield* TurnStore,
        yield* anotherOver(schema),
        yield* anotherOver(schema),
      ];
      const ends = [`update chat set turn = null, turn_until = now() where id = ${chat.id}`];
      for (const waits of [false, true]) {
        assert.strictEqual((yield* first.take(chatbot, chat.id, null))._tag, "Turn");
        if (waits) yield* third.take(chatbot, chat.id, null);
        const told = yield* blocked(sql, ends, second.take(chatbot, chat.id, null));
        if (told._tag !== "Held") return assert.fail("it looked before the turn ended");
        if (waits) assert.isAbove(told.forMillis, 1000, "it is the other's time to go");
        else assert.strictEqual(told.forMillis, 1);
        const next = yield* (waits ? third : second).take(chatbot, chat.id, null);
        if (next._tag !== "Turn") return assert.fail("its turn has come");
        yield* first.release(next.turn);
        yield* sql.unsafe("update chat set waiting = '{}'");
      }
    }).pipe(Effect.provide(layerPostgres(optionsOf(schema))), Effect.scoped);
  });

  it.live("and its key are locked by a release in the order of all others: the key first", () => {
    const schema = freshSchema();
    return Effect.gen(function* () {
      const sql = yield* clientOf(schema, 1);
      const { chat, chatbot } = yield* newChat;
      const turns = yield* TurnStore;
      const taken = yield* turns.take(chatbot, chat.id, { key: "key", fingerprint: "f" });
      if (taken._tag !== "Turn") return assert.fail("the turn is free");
      yield* blocked(sql, ["select from idempotency_key for update"], turns.release(taken.turn), [
        `select from chat where id = ${chat.id} for update nowait`,
      ]);
      assert.strictEqual((yield* turns.take(chatbot, chat.id, null))._tag, "Turn");
    }).pipe(Effect.provide(layerPostgres(optionsOf(schema))), Effect.scoped);
  });

  it.live("takes no notification of another schema for its own", () =>
    Effect.gen(function* () {
      const schema = freshSchema();
      yield* Effect.gen(function* () {
        const turns = yield* TurnStore;
        const sql = yield* clientOf("public", 1);
        const heard: Array<number> = [];
        yield* Effect.forkScoped(
          Stream.runForEach(turns.freed, (freed) =>
            Effect.sync(() => freed && heard.push(freed.chat)),
          ),
          { startImmediately: true },
        );
        const notify = (chat: number, of: string) =>
          sql.unsafe("select pg_notify('parley', $1)", [`freed:7:${chat}:${of}`]);
        yield* Effect.repeat(Effect.andThen(notify(1, schema), Effect.sleep("20 millis")), {
          until: () => heard.length > 0,
        });
        // Notifications come in the order of their commits.
        yield* notify(2, "another");
        yield* notify(3, schema);
        yield* Effect.repeat(Effect.sleep("5 millis"), { until: () => heard.includes(3) });
        assert.notInclude(heard, 2);
      }).pipe(Effect.provide(layerPostgres(optionsOf(schema))));
    }).pipe(Effect.scoped),
  );
});
