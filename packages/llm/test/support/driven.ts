/** The test clock, for effects that also wait for promises. */
import { Effect, Fiber } from "effect";
import { TestClock } from "effect/testing";

/** Lets promises and fibers make progress without the clock advancing. */
export const settle = Effect.promise(async () => {
  for (let n = 0; n < 10; n++) await new Promise((resolve) => setImmediate(resolve));
});

/** Runs the effect while the test clock advances in steps of `step` milliseconds. */
export const driven = <A, E, R>(effect: Effect.Effect<A, E, R>, step = 50) =>
  Effect.gen(function* () {
    const fiber = yield* Effect.forkChild(effect);
    yield* settle;
    while (fiber.pollUnsafe() === undefined) {
      yield* TestClock.adjust(step);
      yield* settle;
    }
    return yield* Fiber.join(fiber);
  });
