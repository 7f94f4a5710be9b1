import { assert, describe, it } from "@effect/vitest";
import { Deferred, Effect, Fiber, Stdio } from "effect";
import { TestClock, TestConsole } from "effect/testing";
import { withProgress } from "../../src/commands/Progress.ts";

/** Runs work of 2.2 seconds, which stands still in its second half, that tells its progress, beside a failing telling if asked. */
const told = Effect.fnUntraced(function* (stderrIsTerminal: boolean, failing = false) {
  const done = yield* Deferred.make<string>();
  let rows = 0;
  const progress = failing
    ? Effect.fail("no telling")
    : Effect.sync(() => `${Math.min((rows += 10), 20)} chats`);
  const fiber = yield* withProgress(Deferred.await(done), progress).pipe(
    Effect.provide(Stdio.layerTest({ stderrIsTerminal: Effect.succeed(stderrIsTerminal) })),
    Effect.forkChild({ startImmediately: true }),
  );
  yield* TestClock.adjust("2200 millis");
  yield* Deferred.succeed(done, "done");
  assert.strictEqual(yield* Fiber.join(fiber), "done");
  yield* TestClock.adjust("10 seconds");
  assert.deepStrictEqual(yield* TestConsole.logLines, []);
  return yield* TestConsole.errorLines;
});

describe("the progress of a command", () => {
  it.effect("is told on a terminal, at most twice a second and until it ends", () =>
    Effect.gen(function* () {
      assert.deepStrictEqual(yield* told(true), ["10 chats", "20 chats"]);
    }),
  );

  it.effect("is not told where nobody sees it", () =>
    Effect.gen(function* () {
      assert.deepStrictEqual(yield* told(false), []);
    }),
  );

  it.effect("may fail to be told", () =>
    Effect.gen(function* () {
      assert.deepStrictEqual(yield* told(true, true), []);
    }),
  );

  it.effect("does not outlive a failure", () =>
    Effect.gen(function* () {
      const failed = yield* Effect.flip(
        withProgress(Effect.fail("broken"), Effect.succeed("x")),
      ).pipe(Effect.provide(Stdio.layerTest({ stderrIsTerminal: Effect.succeed(true) })));
      assert.strictEqual(failed, "broken");
      yield* TestClock.adjust("10 seconds");
      assert.deepStrictEqual(yield* TestConsole.errorLines, []);
    }),
  );
});
