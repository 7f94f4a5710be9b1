/**
 * Hints that other processes send by NOTIFY. A hint may be lost, and after a lost connection some were:
 * then everything is hinted at once.
 */
import type { PgConnection } from "@effect/sql-pg/PgConnection";
import { Effect, PubSub, Schedule, Scope, Stream } from "effect";
import type { SqlError } from "effect/sql";

/**
 * The database-wide channel. Hints of free chats name their schema. Those of changed keys need not: one of another schema
 * only makes keys be looked up again.
 */
export const channel = "parley";

/** Listens on a connection of its own for as long as the scope is open. */
export const makeHints = Effect.fnUntraced(function* (
  connect: Effect.Effect<PgConnection, SqlError.SqlError, Scope.Scope>,
) {
  const hints = yield* PubSub.sliding<string | null>(4096);

  const listening = Effect.acquireUseRelease(
    Effect.all({ connected: Scope.make(), heard: Scope.make() }),
    Effect.fnUntraced(function* ({ connected, heard }) {
      const connection = yield* Scope.provide(connect, connected);
      const notifications = yield* Scope.provide(connection.listen(channel), heard).pipe(
        Effect.timeout("10 seconds"),
      );
      yield* PubSub.publish(hints, null);
      yield* Stream.runForEach(Stream.fromQueue(notifications), ({ payload }) =>
        PubSub.publish(hints, payload),
      );
    }),
    // The other way round it would tell the database, which may not be reached any more.
    ({ connected, heard }, exit) =>
      Effect.andThen(Scope.close(connected, exit), Scope.close(heard, exit)),
  );
  yield* listening.pipe(
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
