import { Deferred, Effect, Fiber } from "effect";
import type { SqlClient } from "effect/sql";

/**
 * Runs a statement that takes a lock, and holds the lock until `release` runs. `awaited` ends when another session is
 * waiting for the lock.
 */
export const hold = Effect.fnUntraced(function* (
  sql: SqlClient.SqlClient,
  statement: string,
  values: ReadonlyArray<unknown>,
) {
  const [locked, done] = [yield* Deferred.make<number>(), yield* Deferred.make<void>()];
  // Forked in the client's scope, so that a failing test does not wait for this transaction.
  const holder = yield* Effect.forkScoped(
    sql.withTransaction(
      Effect.gen(function* () {
        yield* sql.unsafe(statement, values);
        const [own] = yield* sql.unsafe<{ readonly pid: number }>("select pg_backend_pid() as pid");
        yield* Deferred.succeed(locked, own!.pid);
        yield* Deferred.await(done);
      }),
    ),
  );
  const pid = yield* Deferred.await(locked);
  return {
    awaited: sql
      .unsafe("select from pg_stat_activity where $1::int4 = any (pg_blocking_pids(pid))", [pid])
      .pipe(Effect.repeat({ until: (rows) => rows.length > 0 })),
    release: Effect.andThen(Deferred.succeed(done, undefined), Fiber.join(holder)),
  };
});
