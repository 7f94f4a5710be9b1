import { assert, it } from "@effect/vitest";
import { Deferred, Effect, Exit, Fiber, References, Scope } from "effect";
import { withDeadline } from "../../src/connections/Deadlines.ts";
import { makeWriteBatcher } from "../../src/writes/WriteBatcher.ts";

/** A batcher whose batches wait until `open` runs; its batches so far, and the request whose log fields each had. */
const makeGated = Effect.gen(function* () {
  const gate = yield* Deferred.make<void>();
  const [batches, requests]: [Array<ReadonlyArray<number>>, Array<unknown>] = [[], []];
  const write = yield* makeWriteBatcher(
    (_, items: ReadonlyArray<number>) =>
      Effect.flatMap(References.CurrentLogAnnotations, ({ requestId }) => {
        batches.push(items);
        requests.push(requestId);
        return Effect.as(Deferred.await(gate), items);
      }),
    10,
  );
  return { batches, requests, write, open: Deferred.succeed(gate, undefined) };
});

/** Starts a write, and lets it join its lane. */
const begin = <A, E>(write: Effect.Effect<A, E>) =>
  Effect.tap(Effect.forkChild(write, { startImmediately: true }), () => Effect.yieldNow);

it.live("a write that an earlier request's writer sends has its own request's log fields", () =>
  Effect.gen(function* () {
    const { open, requests, write } = yield* makeGated;
    const writes = [
      yield* begin(Effect.annotateLogs(write(0, 1), "requestId", "a")),
      yield* begin(Effect.annotateLogs(write(0, 2), "requestId", "b")),
    ];
    yield* open;
    yield* Fiber.joinAll(writes);
    assert.deepStrictEqual(requests, ["a", "b"]);
  }).pipe(Effect.scoped),
);

it.live("an item fails when it times out, whether it is queued or in flight", () =>
  Effect.gen(function* () {
    const { batches, open, write } = yield* makeGated;
    const early = [
      yield* begin(Effect.flip(withDeadline(50)(write(0, 1)))),
      yield* begin(Effect.flip(withDeadline(50)(write(0, 2)))),
    ];
    const tags = (yield* Fiber.joinAll(early)).map(({ _tag }) => _tag);
    assert.deepStrictEqual(tags, ["StorageUnavailable", "Overloaded"]);
    const next = yield* begin(write(0, 3));
    yield* open;
    assert.strictEqual(yield* Fiber.join(next), 3);
    assert.deepStrictEqual(batches, [[1], [3]]);
  }).pipe(Effect.scoped),
);

it.live(
  "an interruption removes an item that is still queued, but waits for a write in flight to end",
  () =>
    Effect.gen(function* () {
      const { batches, open, write } = yield* makeGated;
      const inFlight = yield* begin(write(0, 1));
      yield* Fiber.interrupt(yield* begin(write(0, 2)));
      const interruption = yield* begin(Fiber.interrupt(inFlight));
      yield* Effect.yieldNow;
      assert.isUndefined(inFlight.pollUnsafe());
      yield* open;
      yield* Fiber.join(interruption);
      assert.deepStrictEqual(batches, [[1]]);
    }).pipe(Effect.scoped),
);

it.effect("a batcher whose scope has closed interrupts a write instead of leaving it waiting", () =>
  Effect.gen(function* () {
    const scope = yield* Scope.make();
    const { open, write } = yield* Scope.provide(makeGated, scope);
    yield* open;
    const first = yield* Effect.forkChild(write(0, 1), { startImmediately: true });
    yield* Scope.close(scope, Exit.void);
    assert.strictEqual(yield* Fiber.join(first), 1);
    assert.isTrue(Exit.hasInterrupts(yield* Effect.exit(write(0, 2))));
  }),
);
