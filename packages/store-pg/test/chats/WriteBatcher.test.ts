import { assert, it } from "@effect/vitest";
import { Deferred, Effect, Exit, Fiber, Scope } from "effect";
import { makeWriteBatcher } from "../../src/chats/WriteBatcher.ts";

const options = { writers: 1, batch: 10, waiting: 10, full: "full", late: "late" };

/** Starts a write, so that it waits in its lane. */
const begun = <A, E>(write: Effect.Effect<A, E>) =>
  Effect.tap(Effect.forkChild(write, { startImmediately: true }), () => Effect.yieldNow);

it.effect(
  "an item that is interrupted while it waits is never written, and makes room for others",
  () =>
    Effect.gen(function* () {
      const written: Array<number> = [];
      const open = yield* Deferred.make<void>();
      const write = yield* makeWriteBatcher(
        (_, items: ReadonlyArray<number>) =>
          Effect.map(Deferred.await(open), () => {
            written.push(...items);
            return items;
          }),
        { ...options, waiting: 2 },
      );
      const fork = (item: number) => begun(write(0, item, 5_000));
      const first = yield* fork(1);
      const waiting = [yield* fork(2), yield* fork(3)];
      assert.strictEqual(yield* Effect.flip(write(0, 4, 5_000)), "full");
      yield* Fiber.interruptAll(waiting);
      const others = [yield* fork(5), yield* fork(6)];
      yield* Deferred.succeed(open, undefined);
      yield* Fiber.joinAll([first, ...others]);
      assert.deepStrictEqual(written, [1, 5, 6]);
    }).pipe(Effect.scoped),
);

it.effect("an interruption waits for the end of a write in flight", () =>
  Effect.gen(function* () {
    const order: Array<string> = [];
    const open = yield* Deferred.make<void>();
    const write = yield* makeWriteBatcher(
      (_, items: ReadonlyArray<number>) =>
        Effect.map(Deferred.await(open), () => {
          order.push("written");
          return items;
        }),
      options,
    );
    const caller = yield* begun(write(0, 1, 5_000));
    const interruption = yield* begun(
      Effect.map(Fiber.interrupt(caller), () => order.push("interrupted")),
    );
    yield* Deferred.succeed(open, undefined);
    yield* Fiber.join(interruption);
    assert.deepStrictEqual(order, ["written", "interrupted"]);
  }).pipe(Effect.scoped),
);

it.live("an item fails at its timeout, whether it waits or is in flight", () =>
  Effect.gen(function* () {
    const written: Array<ReadonlyArray<number>> = [];
    const open = yield* Deferred.make<void>();
    const write = yield* makeWriteBatcher((_, items: ReadonlyArray<number>) => {
      written.push(items);
      return items.includes(1) ? Effect.as(Deferred.await(open), items) : Effect.succeed(items);
    }, options);
    const early = [
      yield* begun(Effect.exit(write(0, 1, 50))),
      yield* begun(Effect.exit(write(0, 2, 50))),
    ];
    assert.deepStrictEqual(yield* Fiber.joinAll(early), [Exit.fail("late"), Exit.fail("full")]);
    const next = yield* begun(write(0, 3, 5_000));
    yield* Deferred.succeed(open, undefined);
    assert.strictEqual(yield* Fiber.join(next), 3);
    assert.deepStrictEqual(written, [[1], [3]]);
  }).pipe(Effect.scoped),
);

it.effect("after the end of its scope a batcher neither writes nor waits", () =>
  Effect.gen(function* () {
    const scope = yield* Scope.make();
    const write = yield* makeWriteBatcher(
      (_, items: ReadonlyArray<number>) => Effect.succeed(items),
      options,
    ).pipe(Scope.provide(scope));
    const first = yield* Effect.forkChild(write(0, 1, 5_000), { startImmediately: true });
    yield* Scope.close(scope, Exit.void);
    assert.strictEqual(yield* Fiber.join(first), 1);
    const late = yield* Effect.exit(write(0, 2, 5_000));
    assert.isTrue(Exit.hasInterrupts(late));
  }),
);
