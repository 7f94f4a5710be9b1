/**
 * An ask's tokens must be added to its key's spending only once, whatever happens to the connection.
 */
import { assert } from "@effect/vitest";
import { AskDeadline, type Turn, TurnStore } from "@parley/core/ports";
import { registerChatbot } from "@parley/core/testing";
import { Clock, Effect, Exit, Fiber } from "effect";
import { SqlError } from "effect/sql";
import { makePools } from "../../src/connections/PgPools.ts";
import type { Session } from "../../src/connections/Session.ts";
import { entry, inSchema, keyOf, makeStore, takeFree } from "../fixtures.ts";
import { hold } from "../hold.ts";
import { optionsOf } from "../PostgresUnderTest.ts";

/**
 * What happens to a write: it is not sent, its response is lost after it has run, it is lost before it runs, or it runs
 * after its caller has given up.
 */
type Fault = "refused" | "response lost" | "request lost" | "request late";

const key = { apiKeyId: "k", tokens: 7 };

/** Creates a store, and a list of faults for its next writes. */
const setUp = Effect.fnUntraced(function* (schema: string) {
  const pools = yield* makePools({ ...optionsOf(schema), maxConnections: 6 });
  const faults: Array<Fault> = [];
  const lateWrites: Array<Fiber.Fiber<unknown, unknown>> = [];
  const query: Session["query"] = <Row extends object>(...args: Parameters<Session["query"]>) =>
    Effect.suspend(() => {
      const write = pools.writes.query<Row>(...args);
      const fault = faults.shift();
      if (fault === undefined) return write;
      const reason = new SqlError.ConnectionError({
        cause: new Error(fault),
        ...(fault === "refused" && { operation: "connect" }),
      });
      const failure = Effect.fail(new SqlError.SqlError({ reason }));
      if (fault === "request late")
        return Effect.flatMap(Effect.forkDetach(Effect.delay(write, "500 millis")), (fiber) => {
          lateWrites.push(fiber);
          return failure;
        });
      return fault === "response lost" ? Effect.andThen(write, failure) : failure;
    });
  const broken = { ...pools, writes: { ...pools.writes, query } };
  const { turns } = yield* makeStore(broken);
  return { chatbot: yield* registerChatbot, faults, lateWrites, turns };
});

const take = (turns: TurnStore["Service"], ...request: Parameters<typeof takeFree>) =>
  Effect.provideService(takeFree(...request), TurnStore, turns);

const append = ({ append }: TurnStore["Service"], turn: Turn) =>
  append(turn, { ...entry, apiKeyId: key.apiKeyId, spentTokens: key.tokens });

/** Turns in an existing chat and in a new one, with and without a key. */
const places = [
  ["in a chat", true, null],
  ["with a key in a chat", true, "asked"],
  ["with a key in a new chat", false, "created"],
  ["in a new chat", false, null],
] as const;

/** Whether the turn has no row in the database. */
const isAlone = ({ chatId, idempotencyKey }: Turn) => chatId === null && idempotencyKey === null;

type Test = (
  turn: Turn,
  up: Effect.Success<ReturnType<typeof setUp>>,
) => Effect.Effect<number, unknown>;

/** Runs each test with a turn of each kind. A test returns the number of tokens that must have been counted. */
const inEachPlace = (description: string, tests: Readonly<Record<string, Test>>) =>
  inSchema(description, function* (_, schema) {
    const up = yield* setUp(schema);
    const { chatbot, turns } = up;
    for (const [name, test] of Object.entries(tests))
      for (const [place, hasChat, text] of places) {
        const { chatId } = yield* turns.append(yield* take(turns, chatbot, null), entry);
        const idempotencyKey = text === null ? null : keyOf(`${text} ${name}`);
        const turn = yield* take(turns, chatbot, hasChat ? chatId : null, idempotencyKey);
        const before = (yield* turns.spending(chatbot, key.apiKeyId)).tokens;
        const expected = yield* test(turn, up);
        const { tokens } = yield* turns.spending(chatbot, key.apiKeyId);
        assert.strictEqual(tokens - before, expected, `${name} ${place}`);
      }
  });

/** A release whose requests meet these faults. */
const releaseWith =
  (...meets: ReadonlyArray<Fault>): Test =>
  (turn, { faults, lateWrites, turns }) =>
    Effect.gen(function* () {
      faults.push(...meets);
      const exit = yield* Effect.exit(turns.release(turn, key));
      yield* Fiber.joinAll(lateWrites.splice(0));
      assert.isEmpty(faults);
      if (!isAlone(turn) || meets[0] === "refused") assert.isTrue(Exit.isSuccess(exit));
      if (!isAlone(turn) || meets[0] !== "request lost") return key.tokens;
      // No row shows whether the tokens were counted, so the release fails rather than count them twice.
      assert.isTrue(Exit.isFailure(exit));
      return 0;
    });

inEachPlace("a failed ask's tokens are counted once, whatever happens to its release or turn", {
  refused: releaseWith("refused", "refused", "refused"),
  "response lost": releaseWith("response lost"),
  "request lost": releaseWith("request lost"),
  // The retried release overtakes the first.
  "request late": releaseWith("request late"),
  "turn lost": (turn, { faults, turns }) =>
    Effect.gen(function* () {
      if (isAlone(turn)) return 0;
      yield* turns.release(turn);
      faults.push("refused");
      yield* turns.release(turn, key);
      return key.tokens;
    }),
});

inEachPlace("an answer's tokens are counted at most once if its append fails", {
  "response lost": (turn, { faults, turns }) =>
    Effect.gen(function* () {
      faults.push("response lost");
      assert.strictEqual((yield* Effect.flip(append(turns, turn)))._tag, "StorageUnavailable");
      // As a failed ask does.
      yield* turns.release(turn, key);
      return key.tokens;
    }),
  "no append in time": (turn, { faults, turns }) =>
    Effect.gen(function* () {
      faults.push(...Array.from({ length: 20 }, () => "request lost" as const));
      const deadline = yield* Clock.currentTimeMillis;
      const appending = Effect.provideService(append(turns, turn), AskDeadline, deadline);
      assert.strictEqual((yield* Effect.flip(appending))._tag, "StorageUnavailable");
      faults.length = 0;
      yield* turns.release(turn, key);
      return isAlone(turn) ? 0 : key.tokens;
    }),
});

inSchema(
  "a release that waits too long for a lock fails, and its tokens are not counted",
  function* (sql, schema) {
    const { chatbot, turns } = yield* setUp(schema);
    const { chatId } = yield* turns.append(yield* take(turns, chatbot, null), entry);
    const turn = yield* take(turns, chatbot, chatId);
    const statement = "select from chat where chatbot_id = $1 for update";
    const lock = yield* hold(sql, statement, [chatbot]);
    const failure = yield* Effect.flip(turns.release(turn, key));
    assert.strictEqual(failure._tag, "StorageUnavailable");
    yield* lock.release;
    assert.strictEqual((yield* turns.spending(chatbot, key.apiKeyId)).tokens, 0);
  },
);

inSchema("what a key spent on earlier days is deleted when it spends again", function* (sql) {
  const chatbot = yield* registerChatbot;
  const turns = yield* TurnStore;
  const spend = (apiKeyId: string) =>
    Effect.flatMap(takeFree(chatbot, null), (turn) =>
      turns.append(turn, { ...entry, apiKeyId, spentTokens: 7 }),
    );
  yield* Effect.forEach(["k", "other"], spend);
  yield* sql`update key_spending set day = day - 1`;
  yield* Effect.all([spend("k"), spend("k"), spend("new")], { concurrency: 3 });
  const rows = yield* sql<{ key_id: string; tokens: bigint; age: number }>`
        select key_id, tokens, (now() at time zone 'utc')::date - day as age
        from key_spending order by key_id`;
  assert.deepStrictEqual(
    rows.map(({ age, key_id, tokens }) => [key_id, Number(tokens), age]),
    [
      ["k", 14, 0],
      ["new", 7, 0],
      ["other", 7, 1],
    ],
  );
});
