/**
 * Reads whose responses are not sent yet keep their turns, as those of a slow client do.
 */
import { assert, it } from "@effect/vitest";
import { defaultChatQuery, defaultEntryQuery } from "@parley/core";
import { Effect, Fiber } from "effect";
import { makeReadTurns, rowsOf } from "../../src/serve/ReadTurns.ts";

const flood = { apiKeyId: "flood" };
const polite = { apiKeyId: "polite" };

it.effect(
  "a key whose responses are not read leaves an eighth of all turns to the other keys",
  () =>
    Effect.gen(function* () {
      const awaitTurn = makeReadTurns();
      const fibers = yield* Effect.forEach(Array.from({ length: 40 }), () =>
        Effect.forkChild(awaitTurn(flood, 100)),
      );
      yield* Effect.yieldNow;
      const turns = fibers.flatMap((fiber) => (fiber.pollUnsafe() === undefined ? [] : fiber));
      assert.lengthOf(turns, 14);
      assert.isNotNull(yield* awaitTurn(polite, 100));
    }),
);

it("a list that a store may read slowly counts as a large page, whatever its limit", () => {
  const chats = { ...defaultChatQuery, limit: 1 };
  const entries = { ...defaultEntryQuery, limit: 1 };
  assert.deepStrictEqual([chats, entries].map(rowsOf), [1, 1]);
  const slow = [
    { ...chats, search: "a" },
    { ...chats, page: 2 },
    { ...chats, orderBy: [{ field: "userRef", descending: false }] as const },
    { ...entries, after: 1 },
  ];
  assert.deepStrictEqual(slow.map(rowsOf), [100, 100, 100, 100]);
});

it.effect("a large page takes the places of four small ones", () =>
  Effect.gen(function* () {
    const awaitTurn = makeReadTurns({ rows: 200, waiting: 10, millis: 10_000 });
    const read = (limit: number) =>
      Effect.forkChild(awaitTurn(flood, limit), { startImmediately: true });
    const [first, second] = [yield* read(100), yield* read(100)];
    const waiting = yield* Effect.forEach([1, 25, 25, 25, 25, 25, 25, 25], read);
    (yield* Fiber.join(first))!();
    (yield* Fiber.join(second))!();
    yield* Effect.yieldNow;
    const turns = waiting.filter((fiber) => fiber.pollUnsafe() !== undefined);
    assert.lengthOf(turns, 7);
  }),
);

it.effect("reads that wait get their turns in turn by key", () =>
  Effect.gen(function* () {
    const awaitTurn = makeReadTurns({ rows: 1, waiting: 10, millis: 10_000 });
    const begun: Array<string> = [];
    const endTurn = (yield* awaitTurn(flood, 100))!;
    const read = (client: typeof flood) =>
      Effect.map(awaitTurn(client, 100), (end) => {
        begun.push(client.apiKeyId);
        end!();
      });
    const fibers = yield* Effect.forEach([flood, flood, flood, polite], (client) =>
      Effect.forkChild(read(client), { startImmediately: true }),
    );
    endTurn();
    yield* Effect.forEach(fibers, Fiber.join);
    assert.deepStrictEqual(begun, ["flood", "polite", "flood", "flood"]);
  }),
);

it.effect(
  "a read is refused if too many of its key are waiting, or if it has waited too long",
  () =>
    Effect.gen(function* () {
      const awaitTurn = makeReadTurns({ rows: 1, waiting: 2, millis: 20 });
      const endTurn = (yield* awaitTurn(polite, 100))!;
      const waiting = yield* Effect.forEach([flood, flood], (client) =>
        Effect.forkChild(awaitTurn(client, 100), { startImmediately: true }),
      );
      assert.isNull(yield* awaitTurn(flood, 100));
      for (const fiber of waiting) assert.isNull(yield* Fiber.join(fiber));
      endTurn();
      assert.isNotNull(yield* awaitTurn(flood, 100));
    }),
);

it.effect("two thousand reads that wait, and end as soon as they begin, all end", () =>
  Effect.gen(function* () {
    const awaitTurn = makeReadTurns({ rows: 1, waiting: 2_000, millis: 10_000 });
    const endTurn = (yield* awaitTurn(flood, 100))!;
    let ends = 0;
    const read = Effect.map(awaitTurn(flood, 100), (end) => {
      ends++;
      end!();
    });
    const fibers = yield* Effect.forEach(Array.from({ length: 2_000 }), () =>
      Effect.forkChild(read, { startImmediately: true }),
    );
    endTurn();
    yield* Effect.forEach(fibers, Fiber.join);
    assert.strictEqual(ends, 2_000);
  }),
);

it.effect("a read whose client leaves while it waits gives up its place", () =>
  Effect.gen(function* () {
    const awaitTurn = makeReadTurns({ rows: 1, waiting: 10, millis: 10_000 });
    const endTurn = (yield* awaitTurn(flood, 100))!;
    const [first, second] = yield* Effect.forEach([flood, flood], (client) =>
      Effect.forkChild(awaitTurn(client, 100), { startImmediately: true }),
    );
    yield* Fiber.interrupt(first!);
    endTurn();
    assert.isNotNull(yield* Fiber.join(second!));
  }),
);
