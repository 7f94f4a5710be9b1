import { assert, describe, it } from "@effect/vitest";
import { Deferred, Effect, Fiber } from "effect";
import { makeCounts, type Count, type Filters } from "../src/Counts.ts";

const counted: Count = { matching: 0, reached: 0, edition: "1", newest: null, oldest: null };

/** A chatbot's searches. */
const search = (chatbot: number, n: number): Filters => ({
  chatbot,
  search: `${n}`,
  userRef: null,
});

/** Counts of which ten are remembered, what they were made for, and one search that fails. */
const makeTen = Effect.gen(function* () {
  const made: Array<Filters> = [];
  const failing = new Set<Filters>();
  const counts = yield* makeCounts(
    (filters) => {
      made.push(filters);
      return Effect.andThen(
        Effect.yieldNow,
        Effect.suspend(() =>
          failing.delete(filters) ? Effect.fail("busy") : Effect.succeed({ ...counted }),
        ),
      );
    },
    { most: 10 },
  );
  const isKnown = (filters: Filters) => counts.known(filters) !== undefined;
  return { counts, failing, isKnown, made };
});

const first = (chatbot: number, many: number) =>
  Array.from({ length: many }, (_, n) => search(chatbot, n));

describe("counts", () => {
  it.effect("are remembered up to so many, of each chatbot those that were wanted last", () =>
    Effect.gen(function* () {
      const { counts, isKnown, made } = yield* makeTen;
      yield* counts.get(search(2, 0));
      yield* Effect.forEach(first(1, 9), counts.get);
      yield* counts.get(search(1, 0));
      assert.strictEqual(made.length, 10);
      yield* counts.get(search(1, 9));
      assert.deepStrictEqual(
        first(1, 10).filter(isKnown),
        first(1, 10).filter((_, n) => n !== 1),
      );
      assert.isTrue(isKnown(search(2, 0)));
    }),
  );

  it.effect("are no more when who wanted them first gave up, or failed", () =>
    Effect.gen(function* () {
      const { counts, failing, isKnown, made } = yield* makeTen;
      for (const [n, filters] of first(1, 100).entries()) {
        if (n % 2 === 0) failing.add(filters);
        const [one, other] = [
          yield* Effect.forkChild(Effect.exit(counts.get(filters)), { startImmediately: true }),
          yield* Effect.forkChild(counts.get(filters), { startImmediately: true }),
        ];
        if (n % 2 === 1) yield* Fiber.interrupt(one);
        yield* Fiber.await(one);
        yield* Fiber.join(other);
      }
      assert.strictEqual(made.length, 150);
      assert.strictEqual(first(1, 100).filter(isKnown).length, 10);
    }),
  );

  it.effect("of a chatbot that searches are those of one that did not for longest", () =>
    Effect.gen(function* () {
      const { counts, made } = yield* makeTen;
      for (let chatbot = 0; chatbot <= 10; chatbot++) yield* counts.get(search(chatbot, 0));
      assert.strictEqual(made.length, 11);
      for (let times = 0; times < 20; times++) yield* counts.get(search(0, 0));
      assert.strictEqual(made.length, 12);
    }),
  );

  it.effect("that end late replace no later one", () =>
    Effect.gen(function* () {
      const gate = yield* Deferred.make<void>();
      const early = { ...counted, reached: 1 };
      const later = { ...counted, reached: 2 };
      const counts = yield* makeCounts(() => Effect.as(Deferred.await(gate), early), { most: 10 });
      const making = yield* Effect.forkChild(counts.get(search(1, 0)), { startImmediately: true });
      counts.remember(search(1, 0), later);
      yield* Deferred.succeed(gate, undefined);
      assert.strictEqual(yield* Fiber.join(making), early);
      assert.strictEqual(counts.known(search(1, 0)), later);
    }),
  );
});
