import { assert, it } from "@effect/vitest";
import { Effect, Fiber, Stdio } from "effect";
import { TestClock, TestConsole } from "effect/testing";
import { withProgress } from "../../src/commands/Progress.ts";

it.effect("the progress of a command is told once a second on a terminal, and nowhere else", () =>
  Effect.gen(function* () {
    for (const [isTerminal, lines] of [
      [false, []],
      [true, ["1 chats", "2 chats"]],
    ] as const) {
      let chats = 0;
      const work = withProgress(
        Effect.as(Effect.sleep("2500 millis"), "done"),
        () => `${++chats} chats`,
      );
      const fiber = yield* Effect.forkChild(
        Effect.provide(work, Stdio.layerTest({ stderrIsTerminal: Effect.succeed(isTerminal) })),
        { startImmediately: true },
      );
      yield* TestClock.adjust("10 seconds");
      assert.strictEqual(yield* Fiber.join(fiber), "done");
      assert.deepStrictEqual(yield* TestConsole.errorLines, lines);
    }
  }),
);
