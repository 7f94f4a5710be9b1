/**
 * Watches whether the database answers. A request that finds out by itself that it does not waits for seconds.
 */
import type { PgConnection } from "@effect/sql-pg/PgConnection";
import { Effect, Schedule, type Scope } from "effect";
import type { SqlError } from "effect/sql";
import { inTime, type Lending } from "./Lending.ts";

/** Milliseconds for a statement on an open connection, then for one on a new connection; after both it is away. */
const patience = [1_000, 2_000] as const;

/** Milliseconds for a new connection to a database that is away. */
const returnPatience = 4_000;

/**
 * Probes the database each second, for as long as the scope is open. A silent connection alone says little: it may be
 * busy, or lead through a firewall that has forgotten it.
 */
export const watchAvailability = (
  reads: Lending,
  connect: Effect.Effect<PgConnection, SqlError.SqlError, Scope.Scope>,
  setAway: (isAway: boolean) => void,
) => {
  let isAway = false;
  const answers = (work: Effect.Effect<unknown, unknown>, millis: number) =>
    Effect.match(Effect.sandbox(inTime(work, millis)), {
      onFailure: () => false,
      onSuccess: () => true,
    });
  let isPending = false;
  /** One at a time: each would keep another connection from the requests. */
  const onOpenConnection = Effect.suspend(() => {
    isPending = true;
    const end = Effect.sync(() => void (isPending = false));
    return Effect.ensuring(
      reads.use("operator", ({ query }) => query("select 1")),
      end,
    );
  });
  const onNewConnection = Effect.scoped(Effect.flatMap(connect, ({ query }) => query("select 1")));
  return Effect.gen(function* () {
    if (!isAway && !isPending && (yield* answers(onOpenConnection, patience[0]))) return;
    isAway = !(yield* answers(onNewConnection, isAway ? returnPatience : patience[1]));
    setAway(isAway);
  }).pipe(Effect.repeat(Schedule.spaced("1 second")), Effect.forkScoped);
};
