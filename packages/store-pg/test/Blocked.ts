import { Effect, Fiber, Redacted } from "effect";
import type { SqlClient } from "effect/sql";
import { inject } from "vitest";
import { clientOf } from "./PostgresUnderTest.ts";

/** Runs what comes to wait for a transaction of `sql`, which begins before, and ends after something more. */
export const blocked = <A, E, R>(
  sql: SqlClient.SqlClient,
  before: ReadonlyArray<string>,
  effect: Effect.Effect<A, E, R>,
  more: ReadonlyArray<string> = [],
) =>
  Effect.gen(function* () {
    const watching = yield* clientOf("public", 1);
    const run = (statements: ReadonlyArray<string>) =>
      Effect.forEach(statements, (statement) => sql.unsafe(statement), { discard: true });
    const running = yield* sql.withTransaction(
      Effect.gen(function* () {
        yield* run(before);
        const [own] = yield* sql.unsafe<{ readonly pid: number }>("select pg_backend_pid() as pid");
        const fiber = yield* Effect.forkChild(effect);
        yield* watching
          .unsafe("select from pg_stat_activity where $1::int4 = any (pg_blocking_pids(pid))", [
            own!.pid,
          ])
          .pipe(Effect.repeat({ until: (waiting) => waiting.length > 0 }));
        yield* run(more);
        return fiber;
      }),
    );
    return yield* Fiber.join(running);
  });

/** Runs what locks two tables wholly, the `later` one last, and is ended once by a deadlock. */
export const meetingDeadlock = <A, E, R>(
  schema: string,
  { earlier, later }: { readonly earlier: string; readonly later: string },
  effect: Effect.Effect<A, E, R>,
) =>
  Effect.gen(function* () {
    const sql = yield* clientOf(schema, 1, Redacted.make(inject("roleUrls").superuser));
    const lock = (table: string) => `lock table ${table} in access share mode`;
    // So that it is the other that is ended.
    const patient = "set local deadlock_timeout = '30s'";
    return yield* blocked(sql, [patient, lock(later)], effect, [lock(earlier)]);
  });
