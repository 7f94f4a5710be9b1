/**
 * Watches whether the database responds, and logs when it becomes unavailable and when it is available again. Without
 * this, each request would wait for seconds to find out.
 */
import type { PgConnection } from "@effect/sql-pg/PgConnection";
import { describeCause } from "@parley/core/ports";
import { Cause, Effect, Exit, Result, Schedule, type Scope } from "effect";
import type { SqlError } from "effect/sql";
import type { DatabaseState, TenantPool } from "./Checkout.ts";
import { deadlines, inTime } from "./Deadlines.ts";
import { lacksConnection } from "./PgErrors.ts";

/**
 * Probes the database once a second, until the scope closes. A silent connection alone says little, because it may be
 * busy, or a firewall may have dropped it: a probe on a new connection decides.
 *
 * @param pool the connections for writes, which asks need: no other resource tells whether an ask can be stored
 * @param onSlot gets the error with which PostgreSQL granted the pool no connection, or `null` if the pool has one
 */
export const watchAvailability = (
  pool: TenantPool,
  connect: Effect.Effect<PgConnection, SqlError.SqlError, Scope.Scope>,
  state: DatabaseState,
  onSlot: (refusal: SqlError.SqlError | null) => Effect.Effect<void>,
) => {
  let isPending = false;
  /** Probes on an open connection, one probe at a time, because a probe takes a connection that requests could use. */
  const onOpenConnection = Effect.suspend(() => {
    isPending = true;
    const end = Effect.sync(() => void (isPending = false));
    return Effect.ensuring(
      pool.use("operator", ({ query }) => query("select 1")),
      end,
    );
  });
  const onNewConnection = Effect.flatMap(connect, ({ query }) => query("select 1")).pipe(
    Effect.asVoid,
    Effect.scoped,
    // The database has responded, and its open connections still work.
    Effect.catchIf(lacksConnection, () => Effect.void),
  );
  return Effect.gen(function* () {
    const { isUnavailable } = state;
    if (!isUnavailable && !isPending) {
      const result = yield* Effect.result(inTime(onOpenConnection, deadlines.probe));
      if (Result.isSuccess(result)) return yield* onSlot(null);
      if (lacksConnection(result.failure)) return yield* onSlot(result.failure);
    }
    const millis = isUnavailable ? deadlines.connect : deadlines.probeOnNewConnection;
    const exit = yield* Effect.exit(inTime(onNewConnection, millis));
    state.isUnavailable = Exit.isFailure(exit);
    if (state.isUnavailable === isUnavailable) return;
    if (Exit.isSuccess(exit)) return yield* Effect.logInfo("The database is available again");
    const line = Effect.logError("The database is unavailable");
    yield* Effect.annotateLogs(line, "reason", describeCause(Cause.squash(exit.cause)));
  }).pipe(
    // The watch is also what ends a refusal of writes, so nothing may end it.
    Effect.catchCause((cause) => Effect.logError("Unexpected error in a probe", cause)),
    Effect.repeat(Schedule.spaced("1 second")),
    Effect.forkScoped,
  );
};
