import { assert, it } from "@effect/vitest";
import { Effect, Fiber } from "effect";
import { makeRoundRobin } from "../../src/connections/RoundRobin.ts";

/** Returns a function that runs a chatbot's work in a slot. */
const slotsOf = (slots: number) => {
  const { release, acquire } = makeRoundRobin<number>(slots);
  return <A>(chatbot: number, work: Effect.Effect<A>) =>
    Effect.acquireUseRelease(
      Effect.interruptible(acquire(chatbot)),
      () => work,
      () => Effect.sync(release),
    );
};

it.effect("waiting chatbots get slots equally often, however much work each of them has", () =>
  Effect.gen(function* () {
    const slot = slotsOf(2);
    const served = new Map<number, number>();
    let all = 0;
    const client = (chatbot: number) =>
      slot(
        chatbot,
        Effect.suspend(() => {
          served.set(chatbot, (served.get(chatbot) ?? 0) + 1);
          // Work of varying length, so that other work joins the queue at any time.
          return Effect.forEach(
            Array.from({ length: 1 + ((all++ * 7) % 5) }),
            () => Effect.yieldNow,
          );
        }),
      ).pipe(Effect.forever, Effect.forkChild);
    // Two clients for each chatbot, so that it always has work that waits, and more for the first.
    const clients = yield* Effect.forEach([1, 1, 1, 1, 1, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5], client);
    while (all < 1_000) yield* Effect.yieldNow;
    yield* Fiber.interruptAll(clients);
    for (const chatbot of [1, 2, 3, 4, 5]) {
      assert.approximately(served.get(chatbot) ?? 0, all / 5, 5, `chatbot ${chatbot}`);
    }
  }),
);

it.live("a slot is neither lost nor granted twice when work is interrupted or times out", () =>
  Effect.gen(function* () {
    const slot = slotsOf(3);
    let inside = 0;
    let maxInside = 0;
    const client = (n: number) =>
      slot(
        n % 5,
        Effect.gen(function* () {
          maxInside = Math.max(maxInside, ++inside);
          for (let slots = 0; slots < n % 4; slots++) yield* Effect.yieldNow;
          // Frees its slot at the very moment when other work times out.
          if (n % 11 === 0) yield* Effect.sleep(20);
        }).pipe(Effect.ensuring(Effect.sync(() => inside--))),
      ).pipe(Effect.timeoutOption(20));
    const fibers = yield* Effect.forEach(
      Array.from({ length: 300 }, (_, n) => n),
      (n) => Effect.forkChild(client(n)),
    );
    // Interrupts work before it waits, while it waits, and while it runs.
    for (const [n, fiber] of fibers.entries()) {
      if (n % 3 === 0) yield* Effect.forkChild(Fiber.interrupt(fiber));
      if (n % 7 === 0) yield* Effect.yieldNow;
    }
    yield* Effect.forEach(fibers, Fiber.await, { discard: true });
    assert.strictEqual(maxInside, 3);
    assert.strictEqual(inside, 0);
    const enter = (n: number) =>
      Effect.forkChild(slot(n, Effect.sync(() => inside++).pipe(Effect.andThen(Effect.never))));
    const forever = yield* Effect.forEach([1, 2, 3, 4], enter);
    yield* Effect.sleep(20);
    assert.strictEqual(inside, 3);
    yield* Fiber.interruptAll(forever);
  }),
);

it.effect("ten thousand waiting tasks that end immediately do not overflow the stack", () =>
  Effect.gen(function* () {
    const slot = slotsOf(1);
    let done = 0;
    const first = yield* Effect.forkChild(slot(0, Effect.never), { startImmediately: true });
    const fibers = yield* Effect.forEach(
      Array.from({ length: 10_000 }, (_, n) => n % 7),
      (chatbot) =>
        Effect.forkChild(
          slot(
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
