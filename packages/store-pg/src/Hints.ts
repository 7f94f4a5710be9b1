/**
 * Hints that other processes send by NOTIFY. A hint may be lost, and after a lost connection some were:
 * then everything is hinted at once.
 */
import * as PgClient from "@effect/sql-pg/PgClient";
import { Effect, PubSub, Schedule, Stream } from "effect";

/** The database-wide channel; hints of other schemas on it do no harm. */
export const channel = "parley";

/** Listens on a connection of its own for as long as the scope is open. */
export const makeHints = Effect.gen(function* () {
  const listener = yield* PgClient.PgClient;
  const hints = yield* PubSub.sliding<string | null>(4096);

  yield* Effect.scoped(
    Effect.gen(function* () {
      const notifications = yield* listener.listen(channel);
      yield* PubSub.publish(hints, null);
      yield* Stream.runForEach(Stream.fromQueue(notifications), ({ payload }) =>
        PubSub.publish(hints, payload),
      );
    }),
  ).pipe(
    Effect.sandbox,
    Effect.ignore,
    Effect.repeat(Schedule.spaced("1 second")),
    Effect.forkScoped,
  );

  /** What follows `kind:` in each hint of that kind; `null` when any may have been missed. */
  return (kind: string): Stream.Stream<string | null> =>
    Stream.fromPubSub(hints).pipe(
      Stream.filter((hint) => hint === null || hint.startsWith(`${kind}:`)),
      Stream.map((hint) => hint && hint.slice(kind.length + 1)),
    );
});
