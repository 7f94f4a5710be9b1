/**
 * Notifications from all processes, including this one, sent with NOTIFY on the channel named after the schema. Some
 * may be lost. Whenever listening starts, including after a lost connection, subscribers receive `null`, because they
 * may have missed notifications.
 */
import type { PgConnection } from "@effect/sql-pg/PgConnection";
import { Effect, PubSub, Schedule, Scope, Stream } from "effect";
import type { SqlError } from "effect/sql";
import { deadlines } from "./Deadlines.ts";

/** Streams the `content` of each `kind:content` payload with the given kind. */
export type Notifications = (kind: string) => Stream.Stream<string | null>;

/** Listens on its own connection until the scope closes. */
export const makeNotifications = Effect.fnUntraced(function* (
  connect: Effect.Effect<PgConnection, SqlError.SqlError, Scope.Scope>,
  schema: string,
) {
  const payloads = yield* PubSub.sliding<string | null>(4096);

  // The connection closes before the listener, which would otherwise send UNLISTEN to a database that may not respond.
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
