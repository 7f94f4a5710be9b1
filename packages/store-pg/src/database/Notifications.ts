/**
 * Notifications from all processes, this one included, sent by NOTIFY on the channel with the schema's name. Some may
 * be lost. Whenever listening begins, also after a lost connection, subscribers receive `null`: they may have missed
 * any notification.
 */
import type { PgConnection } from "@effect/sql-pg/PgConnection";
import { Effect, PubSub, Schedule, Scope, Stream } from "effect";
import type { SqlError } from "effect/sql";
import { deadlines } from "./Deadlines.ts";

/** Returns the `content` of each payload `kind:content` of the given kind. */
export type Notifications = (kind: string) => Stream.Stream<string | null>;

/** Listens on a connection of its own for as long as the scope is open. */
export const makeNotifications = Effect.fnUntraced(function* (
  connect: Effect.Effect<PgConnection, SqlError.SqlError, Scope.Scope>,
  schema: string,
) {
  const payloads = yield* PubSub.sliding<string | null>(4096);

  // The connection closes first: closing the listener would send UNLISTEN to a database that may not respond.
  const listen = Effect.scopedWith((listenScope) =>
    Effect.gen(function* () {
      const connection = yield* connect;
      const messages = yield* Scope.provide(connection.listen(schema), listenScope).pipe(
        Effect.timeout(deadlines.listen),
      );
      yield* PubSub.publish(payloads, null);
      yield* Stream.runForEach(Stream.fromQueue(messages), ({ payload }) =>
        PubSub.publish(payloads, payload),
      );
    }).pipe(Effect.scoped),
  );
  yield* listen.pipe(
    Effect.ignoreCause,
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
