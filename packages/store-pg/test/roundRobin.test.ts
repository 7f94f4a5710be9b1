import { assert, describe, it } from "@effect/vitest";
import { Effect, Fiber, type Duration } from "effect";
import { TestClock } from "effect/testing";
import { roundRobin } from "../src/database/RoundRobin.ts";
import type { Session, Subject } from "../src/Session.ts";

/** Runs statements that are effects, by turn. */
const turnsOf = (connections: number, queueTimeout?: Duration.Input) => {
  const session = { query: (_: Subject, __: string, [effect]: any) => effect };
  const { query } = roundRobin(session as unknown as Session, connections, queueTimeout);
  return (chatbot: number, effect: Effect.Effect<unknown>) => query(chatbot, "", [effect]);
};

describe("statements by turn", () => {
  it.effect("serve a chatbot with many in the queue as often as others", () =>
    Effect.gen(function* () {
      const turn = turnsOf(2);
      const served = new Map<number, number>();
      let all = 0;
      const client = (chatbot: number) =>
        turn(
          chatbot,
          Effect.suspend(() => {
            served.set(chatbot, (served.get(chatbot) ?? 0) + 1);
            // Of different lengths, so that others join the queue at any time.
            return Effect.forEach(
              Array.from({ length: 1 + ((all++ * 7) % 5) }),
              () => Effect.yieldNow,
            );
          }),
        ).pipe(Effect.forever, Effect.forkChild);
      const clients = yield* Effect.forEach([1, 1, 1, 1, 2, 3, 4, 5], client);
      while (all < 1_000) yield* Effect.yieldNow;
      yield* Fiber.interruptAll(clients);
      for (const [chatbot, one] of served) assert.isAtLeast(one, all / 10, `chatbot ${chatbot}`);
    }),
  );

  it.effect("never lose or add a connection, whoever gives up or waits for too long", () =>
    Effect.gen(function* () {
      const turn = turnsOf(3, "10 seconds");
      let inside = 0;
      let most = 0;
      const client = (n: number) =>
        turn(
          n % 5,
          Effect.gen(function* () {
            most = Math.max(most, ++inside);
            for (let turns = 0; turns < n % 4; turns++) yield* Effect.yieldNow;
            if (n % 11 === 0) yield* Effect.sleep("10 seconds");
          }).pipe(Effect.ensuring(Effect.sync(() => inside--))),
        );
      const fibers = yield* Effect.forEach(
        Array.from({ length: 300 }, (_, n) => n),
        (n) => Effect.forkChild(client(n)),
      );
      // Before they wait, while they do, and while they run.
      for (const [n, fiber] of fibers.entries()) {
        if (n % 3 === 0) yield* Effect.forkChild(Fiber.interrupt(fiber));
        if (n % 7 === 0) yield* Effect.yieldNow;
      }
      // Turns come at the very moment at which the others stop waiting.
      for (let times = 0; times < 30; times++) yield* TestClock.adjust("10 seconds");
      yield* Effect.forEach(fibers, Fiber.await, { discard: true });
      assert.strictEqual(most, 3);
      assert.strictEqual(inside, 0);
      const forever = yield* Effect.forEach([1, 2, 3], (n) =>
        Effect.forkChild(turn(n, Effect.sync(() => inside++).pipe(Effect.andThen(Effect.never)))),
      );
      const late = yield* Effect.forkChild(
        turn(
          4,
          Effect.sync(() => inside++),
        ),
      );
      yield* TestClock.adjust("10 seconds");
      assert.strictEqual(inside, 3);
      assert.strictEqual(
        (yield* Effect.flip(Fiber.join(late))).reason._tag,
        "StatementTimeoutError",
      );
      yield* Fiber.interruptAll(forever);
    }),
  );

  it.effect("may all end at once, however many they are", () =>
    Effect.gen(function* () {
      const turn = turnsOf(1);
      let done = 0;
      const first = yield* Effect.forkChild(turn(0, Effect.never), { startImmediately: true });
      const fibers = yield* Effect.forEach(
        Array.from({ length: 10_000 }, (_, n) => n % 7),
        (chatbot) =>
          Effect.forkChild(
            turn(
              chatbot,
              Effect.sync(() => done++),
            ),
          ),
      );
      yield* Effect.yieldNow;
      yield* Fiber.interrupt(first);
      yield* Effect.forEach(fibers, Fiber.join, { discard: true });
      assert.strictEqual(done, 10_000);
    }),
  );
});
