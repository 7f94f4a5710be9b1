import { assert, describe, it } from "@effect/vitest";
import { Effect, Fiber } from "effect";
import { makeFairSemaphore } from "../src/FairSemaphore.ts";

describe("a fair semaphore", () => {
  it.effect("serves who has many waiting as often as those who always come anew", () =>
    Effect.gen(function* () {
      const room = makeFairSemaphore<string>(2);
      const served = new Map<string, number>();
      let all = 0;
      const client = (name: string) =>
        Effect.suspend(() => {
          served.set(name, (served.get(name) ?? 0) + 1);
          // Some take longer than others, so that those come anew at any time.
          return Effect.forEach(
            Array.from({ length: 1 + ((all++ * 7) % 5) }),
            () => Effect.yieldNow,
          );
        }).pipe(room.withPermit(name), Effect.forever, Effect.forkChild);
      const clients = yield* Effect.forEach(
        ["crowd", "crowd", "crowd", "crowd", "a", "b", "c", "d"],
        client,
      );
      while (all < 1_000) yield* Effect.yieldNow;
      yield* Fiber.interruptAll(clients);
      for (const [name, one] of served) assert.isAtLeast(one, all / 10, name);
    }),
  );

  it.effect("lends what others gave up, and no more than there is", () =>
    Effect.gen(function* () {
      const room = makeFairSemaphore<number>(3);
      let inside = 0;
      let most = 0;
      const client = (n: number) =>
        Effect.gen(function* () {
          most = Math.max(most, ++inside);
          for (let turns = 0; turns < n % 4; turns++) yield* Effect.yieldNow;
        }).pipe(Effect.ensuring(Effect.sync(() => inside--)), room.withPermit(n % 5));
      const fibers = yield* Effect.forEach(
        Array.from({ length: 300 }, (_, n) => n),
        (n) => Effect.forkChild(client(n)),
      );
      // Before they wait, while they do, and while they are inside.
      for (const [n, fiber] of fibers.entries()) {
        if (n % 3 === 0) yield* Effect.forkChild(Fiber.interrupt(fiber));
        if (n % 7 === 0) yield* Effect.yieldNow;
      }
      yield* Effect.forEach(fibers, Fiber.await, { discard: true });
      assert.strictEqual(most, 3);
      assert.strictEqual(inside, 0);
      for (let n = 0; n < 3; n++) yield* room.take(n);
      const fourth = yield* Effect.forkChild(room.take(4), { startImmediately: true });
      yield* Effect.yieldNow;
      assert.isUndefined(fourth.pollUnsafe());
      yield* room.release;
      yield* Fiber.join(fourth);
    }),
  );

  it.effect("lends to any number who are done at once", () =>
    Effect.gen(function* () {
      const room = makeFairSemaphore<number>(1);
      let done = 0;
      yield* room.take(0);
      const fibers = yield* Effect.forEach(
        Array.from({ length: 10_000 }, (_, n) => n % 7),
        (key) => Effect.forkChild(room.withPermit(key)(Effect.sync(() => done++))),
      );
      yield* Effect.yieldNow;
      yield* room.release;
      yield* Effect.forEach(fibers, Fiber.join, { discard: true });
      assert.strictEqual(done, 10_000);
      yield* room.take(0);
      const second = yield* Effect.forkChild(room.take(1), { startImmediately: true });
      assert.isUndefined(second.pollUnsafe());
    }),
  );
});
