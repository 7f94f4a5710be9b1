import { assert, it } from "@effect/vitest";
import { Deferred, Effect, Fiber } from "effect";
import { gather } from "../src/Gather.ts";

it.effect("of writes that are gathered one that throws fails alone", () =>
  Effect.gen(function* () {
    const write = yield* gather(
      (_, items: ReadonlyArray<number>) => {
        if (items.includes(3)) throw new Error("three");
        return Effect.as(Effect.yieldNow, items);
      },
      { writers: 1, most: 10, waiting: 10, full: "full" },
    );
    const exits = yield* Effect.forEach([1, 2, 3, 4, 5], (item) => Effect.exit(write(0, item)), {
      concurrency: "unbounded",
    });
    assert.deepStrictEqual(
      exits.map(({ _tag }) => _tag),
      ["Success", "Success", "Failure", "Success", "Success"],
    );
  }).pipe(Effect.scoped),
);

it.effect(
  "what is interrupted while it waits is never written, and leaves its place to others",
  () =>
    Effect.gen(function* () {
      const written: Array<number> = [];
      const open = yield* Deferred.make<void>();
      const write = yield* gather(
        (_, items: ReadonlyArray<number>) =>
          Effect.map(Deferred.await(open), () => {
            written.push(...items);
            return items;
          }),
        { writers: 1, most: 10, waiting: 2, full: "full" },
      );
      const fork = (item: number) =>
        Effect.forkChild(write(0, item), { startImmediately: true }).pipe(
          Effect.tap(() => Effect.yieldNow),
        );
      const first = yield* fork(1);
      const waiting = [yield* fork(2), yield* fork(3)];
      assert.strictEqual(yield* Effect.flip(write(0, 4)), "full");
      yield* Fiber.interruptAll(waiting);
      const others = [yield* fork(5), yield* fork(6)];
      yield* Deferred.succeed(open, undefined);
      yield* Fiber.joinAll([first, ...others]);
      assert.deepStrictEqual(written, [1, 5, 6]);
    }).pipe(Effect.scoped),
);

it.effect("who is interrupted while it is written is over when the write is", () =>
  Effect.gen(function* () {
    const order: Array<string> = [];
    const open = yield* Deferred.make<void>();
    const write = yield* gather(
      (_, items: ReadonlyArray<number>) =>
        Effect.map(Deferred.await(open), () => {
          order.push("written");
          return items;
        }),
      { writers: 1, most: 10, waiting: 10, full: "full" },
    );
    const caller = yield* Effect.forkChild(write(0, 1), { startImmediately: true });
    yield* Effect.yieldNow;
    const interruption = yield* Effect.forkChild(
      Effect.map(Fiber.interrupt(caller), () => order.push("interrupted")),
      { startImmediately: true },
    );
    yield* Effect.yieldNow;
    yield* Deferred.succeed(open, undefined);
    yield* Fiber.join(interruption);
    assert.deepStrictEqual(order, ["written", "interrupted"]);
  }).pipe(Effect.scoped),
);
