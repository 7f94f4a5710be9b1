/**
 * The tokens of an ask are added once to what its key has spent, whatever happens to the connection.
 */
import { assert, it } from "@effect/vitest";
import { AskDeadline, type Turn, TurnStore } from "@parley/core/ports";
import { registerChatbot } from "@parley/core/testing";
import { Clock, Effect, Fiber } from "effect";
import { SqlError } from "effect/sql";
import { makePools } from "../../src/database/PgPools.ts";
import { entry, inSchema, keyOf, makeStore, takeFree } from "../fixtures.ts";
import { hold } from "../hold.ts";
import { optionsOf } from "../PostgresUnderTest.ts";

/**
 * What happens to a write: it is not sent, it runs and its response is lost, it is lost before it runs, or it runs
 * after its caller gave up.
 */
type Fault = "refused" | "response lost" | "request lost" | "request late";

const key = { apiKeyId: "k", tokens: 7 };

/** A store, and the faults of its next writes. */
const setUp = Effect.fnUntraced(function* (schema: string) {
  const pools = yield* makePools({ ...optionsOf(schema), maxConnections: 6 });
  const faults: Array<Fault> = [];
  const lateWrites: Array<Fiber.Fiber<unknown, unknown>> = [];
  const failing =
    <Args extends ReadonlyArray<never>, A>(
      write: (...args: Args) => Effect.Effect<A, SqlError.SqlError>,
    ) =>
    (...args: Args) =>
      Effect.suspend(() => {
        const fault = faults.shift();
        if (fault === undefined) return write(...args);
        const reason = new SqlError.ConnectionError({
          cause: new Error(fault),
          ...(fault === "refused" && { operation: "connect" }),
        });
        const failure = Effect.fail(new SqlError.SqlError({ reason }));
        if (fault === "request late") {
          const lateWrite = Effect.delay(write(...args), "500 millis");
          return Effect.flatMap(Effect.forkDetach(lateWrite), (fiber) => {
            lateWrites.push(fiber);
            return failure;
          });
        }
        return fault === "response lost" ? Effect.andThen(write(...args), failure) : failure;
      });
  const query = failing(pools.writes.query as never) as typeof pools.writes.query;
  const broken = { ...pools, writes: { ...pools.writes, query } };
  const { turns } = yield* makeStore(broken);
  return { chatbot: yield* registerChatbot, faults, lateWrites, turns };
});

const take = (turns: TurnStore["Service"], ...request: Parameters<typeof takeFree>) =>
  Effect.provideService(takeFree(...request), TurnStore, turns);

/** Turns of an existing and of a new chat, with and without a key. */
const places = [
  ["in a chat", true, null],
  ["with a key in a chat", true, keyOf("asked")],
  ["with a key in a new chat", false, keyOf("created")],
  ["in a new chat", false, null],
] as const;

/** Whether no row belongs to the turn. */
const isAlone = ({ chatId, idempotencyKey }: Turn) => chatId === null && idempotencyKey === null;

/** Runs the test, which returns the number of tokens that it must add, with a turn of each kind. */
const inEachPlace = (
  test: (
    turn: Turn,
    up: Effect.Success<ReturnType<typeof setUp>>,
  ) => Effect.Effect<number, unknown>,
) =>
  inSchema((_, schema) =>
    Effect.gen(function* () {
      const up = yield* setUp(schema);
      const { chatbot, turns } = up;
      for (const [place, hasChat, idempotencyKey] of places) {
        const { chatId } = yield* turns.append(yield* take(turns, chatbot, null), entry);
        const turn = yield* take(turns, chatbot, hasChat ? chatId : null, idempotencyKey);
        const before = (yield* turns.spending(chatbot, key.apiKeyId)).tokens;
        const expected = yield* test(turn, up);
        const { tokens } = yield* turns.spending(chatbot, key.apiKeyId);
        assert.strictEqual(tokens - before, expected, place);
      }
    }),
  );

it.live("the tokens of a failed ask are counted when the database returns", () =>
  inEachPlace((turn, { faults, turns }) =>
    Effect.gen(function* () {
      faults.push("refused", "refused", "refused");
      yield* turns.release(turn, key);
      assert.isEmpty(faults);
      return key.tokens;
    }),
  ),
);

for (const fault of ["response lost", "request lost"] as const) {
  it.live(`the tokens of a failed ask are counted once after a release with its ${fault}`, () =>
    inEachPlace((turn, { faults, turns }) =>
      Effect.gen(function* () {
        faults.push(fault);
        const release = turns.release(turn, key);
        if (!isAlone(turn)) {
          yield* release;
          return key.tokens;
        }
        // No row shows whether the tokens were counted: the release fails, so that they are not counted twice.
        assert.strictEqual((yield* Effect.flip(release))._tag, "StorageUnavailable");
        return fault === "response lost" ? key.tokens : 0;
      }),
    ),
  );
}

it.live(
  "the tokens of a failed ask are counted once if a repeated release overtakes the first",
  () =>
    inEachPlace((turn, { faults, lateWrites, turns }) =>
      Effect.gen(function* () {
        faults.push("request late");
        yield* Effect.exit(turns.release(turn, key));
        yield* Fiber.joinAll(lateWrites.splice(0));
        return key.tokens;
      }),
    ),
);

it.live("the tokens of a failed ask are counted once if its turn was lost", () =>
  inEachPlace((turn, { faults, turns }) =>
    Effect.gen(function* () {
      if (isAlone(turn)) return 0;
      yield* turns.release(turn);
      faults.push("refused");
      yield* turns.release(turn, key);
      return key.tokens;
    }),
  ),
);

it.live("the tokens of an answer are counted once if the response to its append is lost", () =>
  inEachPlace((turn, { faults, turns }) =>
    Effect.gen(function* () {
      faults.push("response lost");
      const append = turns.append(turn, {
        ...entry,
        apiKeyId: key.apiKeyId,
        spentTokens: key.tokens,
      });
      assert.strictEqual((yield* Effect.flip(append))._tag, "StorageUnavailable");
      // As a failed ask does.
      yield* turns.release(turn, key);
      return key.tokens;
    }),
  ),
);

it.live("the tokens of an answer are counted once if no append of it arrives in time", () =>
  inEachPlace((turn, { faults, turns }) =>
    Effect.gen(function* () {
      faults.push(...Array.from({ length: 20 }, () => "request lost" as const));
      const deadline = yield* Clock.currentTimeMillis;
      const append = turns.append(turn, {
        ...entry,
        apiKeyId: key.apiKeyId,
        spentTokens: key.tokens,
      });
      const failure = yield* Effect.flip(Effect.provideService(append, AskDeadline, deadline));
      assert.strictEqual(failure._tag, "StorageUnavailable");
      faults.length = 0;
      yield* turns.release(turn, key);
      return isAlone(turn) ? 0 : key.tokens;
    }),
  ),
);

it.live("a release that waits too long for a lock says that its tokens are not counted", () =>
  inSchema((sql, schema) =>
    Effect.gen(function* () {
      const { chatbot, turns } = yield* setUp(schema);
      const { chatId } = yield* turns.append(yield* take(turns, chatbot, null), entry);
      const turn = yield* take(turns, chatbot, chatId);
      const statement = "select from chat where chatbot_id = $1 for update";
      const lock = yield* hold(sql, statement, [chatbot]);
      const failure = yield* Effect.flip(turns.release(turn, key));
      assert.strictEqual(failure._tag, "StorageUnavailable");
      yield* lock.release;
      assert.strictEqual((yield* turns.spending(chatbot, key.apiKeyId)).tokens, 0);
    }),
  ),
);
