import { assert, it } from "@effect/vitest";
import { Deferred, Effect, Exit, Fiber, References, Scope } from "effect";
import { withDeadline } from "../../src/connections/Deadlines.ts";
import { makeWriteBatcher } from "../../src/writes/WriteBatcher.ts";

const options = { maxWriters: 1, maxItems: 10 };

/** Starts a write, and lets it join its lane. */
const begin = <A, E>(write: Effect.Effect<A, E>) =>
  Effect.tap(Effect.forkChild(write, { startImmediately: true }), () => Effect.yieldNow);

it.live("a write that an earlier request's writer sends has its own request's log fields", () =>
  Effect.gen(function* () {
    const requests: Array<unknown> = [];
    const open = yield* Deferred.make<void>();
    const write = yield* makeWriteBatcher(
      (_, items: ReadonlyArray<number>) =>
        Effect.flatMap(References.CurrentLogAnnotations, ({ requestId }) => {
          requests.push(requestId);
          return Effect.as(Deferred.await(open), items);
        }),
      options,
    );
    const writes = [
      yield* begin(Effect.annotateLogs(write(0, 1), "requestId", "a")),
      yield* begin(Effect.annotateLogs(write(0, 2), "requestId", "b")),
    ];
    yield* Deferred.succeed(open, undefined);
    yield* Fiber.joinAll(writes);
    assert.deepStrictEqual(requests, ["a", "b"]);
  }).pipe(Effect.scoped),
);

it.live("an item fails when it times out, whether it is queued or in flight", () =>
  Effect.gen(function* () {
    const writes: Array<ReadonlyArray<number>> = [];
    const open = yield* Deferred.make<void>();
    const write = yield* makeWriteBatcher((_, items: ReadonlyArray<number>) => {
      writes.push(items);
      return items.includes(1) ? Effect.as(Deferred.await(open), items) : Effect.succeed(items);
    }, options);
    const early = [
      yield* begin(Effect.flip(withDeadline(50)(write(0, 1)))),
      yield* begin(Effect.flip(withDeadline(50)(write(0, 2)))),
    ];
    const tags = (yield* Fiber.joinAll(early)).map(({ _tag }) => _tag);
    assert.deepStrictEqual(tags, ["StorageUnavailable", "Overloaded"]);
    const next = yield* begin(write(0, 3));
    yield* Deferred.succeed(open, undefined);
    assert.strictEqual(yield* Fiber.join(next), 3);
    assert.deepStrictEqual(writes, [[1], [3]]);
  }).pipe(Effect.scoped),
);

it.live(
  "an interruption removes an item that is still queued, but waits for a write in flight to end",
  () =>
    Effect.gen(function* () {
      const writes: Array<ReadonlyArray<number>> = [];
      const open = yield* Deferred.make<void>();
      const write = yield* makeWriteBatcher((_, items: ReadonlyArray<number>) => {
        writes.push(items);
        return Effect.as(Deferred.await(open), items);
      }, options);
      const inFlight = yield* begin(write(0, 1));
      const waitingWrite = yield* begin(write(0, 2));
      yield* Fiber.interrupt(waitingWrite);
      const interruption = yield* begin(Fiber.interrupt(inFlight));
      yield* Effect.yieldNow;
      assert.isUndefined(inFlight.pollUnsafe());
      yield* Deferred.succeed(open, undefined);
      yield* Fiber.join(interruption);
      assert.deepStrictEqual(writes, [[1]]);
    }).pipe(Effect.scoped),
);

it.effect("a batcher whose scope has closed interrupts a write instead of leaving it waiting", () =>
  Effect.gen(function* () {
    const scope = yield* Scope.make();
    const write = yield* makeWriteBatcher(
      (_, items: ReadonlyArray<number>) => Effect.succeed(items),
      options,
    ).pipe(Scope.provide(scope));
    const first = yield* Effect.forkChild(write(0, 1), { startImmediately: true });
    yield* Scope.close(scope, Exit.void);
    assert.strictEqual(yield* Fiber.join(first), 1);
    const late = yield* Effect.exit(write(0, 2));
    assert.isTrue(Exit.hasInterrupts(late));
  }),
);
