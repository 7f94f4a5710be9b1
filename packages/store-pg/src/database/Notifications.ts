/**
 * Notifications that other processes send by NOTIFY. One may be lost, and after a lost connection some were: then
 * subscribers get `null`, which stands for any.
 */
import type { PgConnection } from "@effect/sql-pg/PgConnection";
import { Effect, PubSub, Schedule, Scope, Stream } from "effect";
import type { SqlError } from "effect/sql";

/**
 * The database-wide channel. Notifications of free chats name their schema. Those of changed keys need not: one of another
 * schema only makes keys be looked up again.
 */
export const channel = "parley";

/** Payloads of the form `kind:content`: the content of each of the kind. */
export type Notifications = (kind: string) => Stream.Stream<string | null>;

/** Listens on a connection of its own for as long as the scope is open. */
export const makeNotifications = Effect.fnUntraced(function* (
  connect: Effect.Effect<PgConnection, SqlError.SqlError, Scope.Scope>,
) {
  const payloads = yield* PubSub.sliding<string | null>(4096);

  const listening = Effect.acquireUseRelease(
    Effect.all({ connected: Scope.make(), listened: Scope.make() }),
    Effect.fnUntraced(function* ({ connected, listened }) {
      const connection = yield* Scope.provide(connect, connected);
      const received = yield* Scope.provide(connection.listen(channel), listened).pipe(
        Effect.timeout("10 seconds"),
      );
      yield* PubSub.publish(payloads, null);
      yield* Stream.runForEach(Stream.fromQueue(received), ({ payload }) =>
        PubSub.publish(payloads, payload),
      );
    }),
    // In this order: to end the listening first would send UNLISTEN to a database that may not answer.
    ({ connected, listened }, exit) =>
      Effect.andThen(Scope.close(connected, exit), Scope.close(listened, exit)),
  );
  yield* listening.pipe(
    Effect.sandbox,
    Effect.ignore,
    Effect.repeat(Schedule.spaced("1 second")),
    Effect.forkScoped,
  );

  const notifications: Notifications = (kind) =>
    Stream.fromPubSub(payloads).pipe(
      Stream.filter((payload) => payload === null || payload.startsWith(`${kind}:`)),
      Stream.map((payload) => payload && payload.slice(kind.length + 1)),
    );
  return notifications;
});
