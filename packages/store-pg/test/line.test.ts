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

  it.live(
    "takes no hint of another schema for its own, and any of a server that names none",
    () => {
      /** Two servers over a schema of its own, with a chatbot and a chat; the ids are the same in each. */
      const pair = Effect.gen(function* () {
        const options = optionsOf(freshSchema());
        const servers = [
          yield* Layer.build(Layer.fresh(layerPostgres(options))),
          yield* Layer.build(Layer.fresh(layerPostgres(options))),
        ] as const;
        const { chat, chatbot } = yield* Effect.provideContext(newChat, servers[0]);
        const [first, second] = servers.map((server) => Context.get(server, TurnStore));
        /** The end of a turn that another server waits for. */
        const end = Effect.gen(function* () {
          const taken = yield* first!.take(chatbot, chat.id, null);
          if (taken._tag !== "Turn") return assert.fail("the turn is free");
          yield* second!.take(chatbot, chat.id, null);
          yield* first!.release(taken.turn);
        });
        const hints: Array<{ readonly chatbot: number; readonly chat: number } | null> = [];
        const read = (hint: (typeof hints)[number]) => Effect.sync(() => hints.push(hint));
        yield* Effect.forkScoped(Stream.runForEach(second!.freed, read), {
          startImmediately: true,
        });
        return { here: { chatbot, chat: chat.id }, end, hints };
      });
      return Effect.gen(function* () {
        const [one, another] = [yield* pair, yield* pair];
        const { here } = one;
        assert.deepStrictEqual(another.here, here);
        const sql = yield* clientOf("public", 1);
        const tell = (chat: number) =>
          sql.unsafe("select pg_notify('parley', $1)", [`freed:7:${chat}`]);
        const heard = ({ hints }: typeof one, chat: number) =>
          Effect.sync(() => hints.some((hint) => hint?.chat === chat));
        const both = [one, another];
        yield* Effect.repeat(Effect.delay(tell(7), "20 millis"), {
          until: () =>
            Effect.forEach(both, (each) => heard(each, 7)).pipe(
              Effect.map((all) => all.every(Boolean)),
            ),
        });
        for (const { hints } of both) hints.length = 0;
        // Hints come in the order of their commits.
        for (const each of [another, one]) {
          yield* each.end;
          yield* Effect.repeat(Effect.sleep("5 millis"), { until: () => heard(each, here.chat) });
        }
        yield* tell(9);
        yield* Effect.repeat(Effect.sleep("5 millis"), { until: () => heard(one, 9) });
        const after = one.hints.filter((hint) => hint?.chat !== 7);
        assert.deepStrictEqual(after, [here, { chatbot: 7, chat: 9 }]);
      }).pipe(Effect.scoped);
    },
  );
});
