/**
 * Takes and appends that share a statement. The outcome of each must not depend on the others.
 */
import { assert } from "@effect/vitest";
import {
  ChatStore,
  type ChatId,
  type IdempotencyKey,
  type TakeResult,
  TurnStore,
} from "@parley/core/ports";
import { registerChatbot } from "@parley/core/testing";
import { Cause, Deferred, Effect, Exit, Fiber, Result } from "effect";
import { makePools } from "../../src/connections/PgPools.ts";
import { bare, entry, inSchema, makeStore, takeFree } from "../fixtures.ts";
import { hold } from "../hold.ts";
import { optionsOf } from "../PostgresUnderTest.ts";

const key = (name: string, fingerprint = "f"): IdempotencyKey => ({ key: name, fingerprint });

/** Creates a chatbot and an instance of the store whose statements are counted. */
const setUp = Effect.fnUntraced(function* (schema: string) {
  const pools = yield* makePools({ ...optionsOf(schema), maxConnections: 10 });
  let statements = 0;
  let gate: Deferred.Deferred<void> | null = null;
  const countingPools = {
    ...pools,
    writes: {
      ...pools.writes,
      query: (...args: Parameters<typeof pools.writes.query>) =>
        Effect.suspend(() => {
          statements++;
          const query = pools.writes.query<any>(...args);
          return gate === null ? query : Effect.andThen(Deferred.await(gate), query);
        }),
    },
  };
  const { turns } = yield* makeStore(countingPools);
  const chatbot = yield* registerChatbot;
  const create = Effect.map(
    ChatStore.use((store) => store.createChat(chatbot, bare, null)),
    ({ chat }) => chat.id,
  );
  const take = (chat: ChatId | null, idempotencyKey: IdempotencyKey | null = null) =>
    Effect.provideService(takeFree(chatbot, chat, idempotencyKey), TurnStore, turns);
  /** Runs work that arrives while the chatbot's writer does other work, so that all of it shares a statement. */
  const together = Effect.fnUntraced(function* <A, E>(
    otherWork: Effect.Effect<unknown, unknown>,
    work: ReadonlyArray<Effect.Effect<A, E>>,
  ) {
    const open = yield* Deferred.make<void>();
    gate = open;
    const before = statements;
    const writer = yield* Effect.forkChild(otherWork);
    yield* Effect.repeat(Effect.yieldNow, { until: () => statements === before + 1 });
    const fibers = yield* Effect.forEach(work, (item) =>
      Effect.forkChild(Effect.result(item), { startImmediately: true }),
    );
    gate = null;
    yield* Deferred.succeed(open, undefined);
    yield* Fiber.join(writer);
    return { fibers, statements: () => statements - before - 1 };
  });
  return { chatbot, create, take, together, turns };
});

type SetUp = Effect.Success<ReturnType<typeof setUp>>;
const describeTake = (result: Result.Result<TakeResult, { readonly _tag: string }>): string => {
  if (Result.isFailure(result)) return result.failure._tag;
  const take = result.success;
  return take._tag === "Held" ? `Held by ${take.by}` : take._tag;
};

inSchema(
  "the decision on a take does not affect the other takes in its statement",
  function* (sql, schema) {
    const { chatbot, create, take, together, turns } = yield* setUp(schema);
    const [other, inUse, locked, ...chats] = yield* Effect.replicateEffect(create, 7);
    yield* take(null, key("used"));
    yield* take(inUse!);
    const claim = yield* hold(
      sql,
      `insert into idempotency_key (chatbot_id, key, fingerprint, made_at, turn, turn_until)
        select $1, 'overtaken', 'f', now(), 'another', now() + interval '10 seconds'
        from (select from chat where id = $2::int8 for update) locked`,
      [chatbot, locked],
    );
    const { fibers, statements } = yield* together(turns.take(chatbot, other!, null), [
      turns.take(chatbot, chats[0]!, null),
      turns.take(chatbot, chats[1]!, key("used", "g")),
      turns.take(chatbot, inUse!, key("k")),
      turns.take(chatbot, locked!, null),
      turns.take(chatbot, chats[2]!, key("overtaken")),
      turns.take(chatbot, chats[3]!, key("another")),
    ]);
    yield* claim.awaited;
    yield* claim.release;
    assert.deepStrictEqual((yield* Fiber.joinAll(fibers)).map(describeTake), [
      "TurnTaken",
      "IdempotencyKeyReused",
      "Held by chat",
      "Held by chat",
      "Held by key",
      "TurnTaken",
    ]);
    // The take that was overtaken is decided again.
    assert.strictEqual(statements(), 2);
  },
);

/** Takes turns in `many` new chats, half of them with a key, and one more to keep the writer busy. */
const takeMany = Effect.fnUntraced(function* ({ create, take }: SetUp, many: number) {
  const turns = yield* Effect.all(
    Array.from({ length: many + 1 }, (_, n) =>
      Effect.flatMap(create, (chat) => take(chat, n % 2 === 0 ? null : key(`k${n}`))),
    ),
    { concurrency: "unbounded" },
  );
  return { other: turns[0]!, turns: turns.slice(1) };
});

inSchema(
  "64 appends that arrive together share a statement, with and without keys",
  function* (_, schema) {
    const up = yield* setUp(schema);
    const { other, turns } = yield* takeMany(up, 64);
    const { fibers, statements } = yield* up.together(
      up.turns.append(other, entry),
      turns.map((turn, n) => up.turns.append(turn, { ...entry, question: `q${n}` })),
    );
    const entries = (yield* Fiber.joinAll(fibers)).map(Result.getOrThrow);
    assert.deepStrictEqual(
      entries.map(({ chatId, question }) => [chatId, question]),
      turns.map(({ chatId }, n) => [chatId, `q${n}`]),
    );
    assert.strictEqual(statements(), 1);
  },
);

inSchema(
  "an append that cannot be stored does not affect the other appends in its statement",
  function* (sql, schema) {
    const up = yield* setUp(schema);
    const { other, turns } = yield* takeMany(up, 6);
    const [lost, erased, locked, broken] = turns;
    yield* up.turns.release(lost!);
    yield* sql.unsafe("delete from chat where id = $1::int8", [erased!.chatId]);
    const lock = yield* hold(sql, "select from chat where id = $1::int8 for update", [
      locked!.chatId,
    ]);
    // With this entry, the append to the chat violates a unique index.
    yield* sql.unsafe(
      `insert into entry (chatbot_id, chat_id, id, position, question, answer, moderation, flagged, create_time)
        values ($1, $2::int8, 1000000, 1, '', '', '', false, now())`,
      [up.chatbot, broken!.chatId],
    );
    const { fibers } = yield* up.together(
      up.turns.append(other, entry),
      turns.map((turn) => Effect.exit(up.turns.append(turn, entry))),
    );
    const [first, second, third, ...others] = fibers;
    const stored = yield* Fiber.joinAll([first!, second!, ...others]);
    yield* lock.release;
    const exits = [...stored, yield* Fiber.join(third!)].map(Result.getOrThrow);
    assert.deepStrictEqual(
      exits.map((exit) =>
        Exit.isSuccess(exit)
          ? "stored"
          : Cause.hasDies(exit.cause)
            ? "died"
            : (Cause.squash(exit.cause) as any)._tag,
      ),
      ["TurnLost", "ChatNotFound", "died", "stored", "stored", "stored"],
    );
  },
);
