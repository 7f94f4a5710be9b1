/**
 * The time limits of work on the database, and functions that apply them.
 */
import { Context, Effect, Fiber } from "effect";
import { SqlError } from "effect/sql";

/**
 * In milliseconds, ascending. Of two limits, the one with the cheaper or more precise error must expire first:
 * `test/database/Deadlines.test.ts` says which must come before which.
 */
export const deadlines = {
  /** An erasure gives up on a lock (`lock_timeout`), and tries again. */
  erasureLock: 1_000,
  /** A `select 1` on an open connection, which probes the connection or the database. */
  probe: 1_000,
  /** A write gives up on a lock (`lock_timeout`). */
  writeLock: 1_500,
  /** A probe of the database on a new connection, after one on an open connection has failed. */
  probeOnNewConnection: 2_000,
  /** A migration gives up on a lock (`lock_timeout`), and tries again. While it waits, it delays other statements. */
  migrationLock: 3_000,
  /** Opening a connection; also the probe of a database that is unavailable. */
  connect: 4_000,
  /** PostgreSQL cancels a read or a write (`statement_timeout`). The connection stays usable. */
  statement: 4_000,
  /** A connection that has not responded to a read or a write for this long counts as dead. */
  silence: 4_500,
  /** One read or write, including the wait for a connection. */
  checkout: 4_800,
  /** All statements of a creation, a take, or an attempt to append, renew or release, together. */
  storeCall: 5_000,
  /**
   * PostgreSQL ends a session that is idle in a transaction, for example because its process vanished
   * (`idle_in_transaction_session_timeout`).
   */
  idleTransaction: 5_000,
  /** A long list or a sweep of old keys, including the wait for a connection; also its `statement_timeout`. */
  bulk: 10_000,
  /** Subscribing to notifications (LISTEN) on a new connection. */
  listen: 10_000,
  /**
   * A pooled connection of this age is replaced before its next use: it may lead to a former primary that has become a
   * standby.
   */
  connectionAge: 30_000,
} as const;

/** A time limit as PostgreSQL prints the setting. */
export const toSetting = (millis: number) =>
  millis % 1_000 === 0 ? `${millis / 1_000}s` : `${millis}ms`;

/** When work that consists of several statements must end, on the clock of `performance.now`. */
const WorkDeadline = Context.Reference("@parley/store-pg/WorkDeadline", {
  defaultValue: () => Infinity,
});

/**
 * Gives all statements of the work this many milliseconds together, besides the deadline of each. Ends nothing itself:
 * checkouts and write batchers read {@link timeLeft}.
 */
export const withDeadline =
  (millis: number) =>
  <A, E, R>(work: Effect.Effect<A, E, R>) =>
    Effect.suspend(() => Effect.provideService(work, WorkDeadline, performance.now() + millis));

/** Milliseconds that remain of the innermost {@link withDeadline}; `Infinity` outside. */
export const timeLeft = Effect.map(WorkDeadline, (deadline) => deadline - performance.now());

export const noResponseError = new SqlError.SqlError({
  reason: new SqlError.StatementTimeoutError({
    cause: new Error("the database did not respond in time"),
  }),
});

/** Gives up on a short statement that has no other deadline, such as BEGIN. */
export const inTime = <A, E, R>(
  statement: Effect.Effect<A, E, R>,
  millis: number = deadlines.storeCall,
) => within(statement, millis, true, () => noResponseError);

/**
 * Stops waiting for the work after this many milliseconds, even in uninterruptible regions: the work has a fiber of its
 * own, and the timer is Node's. Work on a silent connection may end later. With `cancels`, an interruption cancels the
 * work; otherwise it waits for the work to end.
 */
export const within = <A, E, R, E2>(
  work: Effect.Effect<A, E, R>,
  millis: number,
  cancels: boolean,
  onTimeout: () => E2,
): Effect.Effect<A, E | E2, R> =>
  Effect.contextWith((context: Context.Context<R>) =>
    Effect.callback<A, E | E2>((resume) => {
      const fiber = Effect.runForkWith(context)(work);
      const timer = setTimeout(() => {
        unobserve();
        // Before `resume`, which may free a slot: work that still waits for one would get it, and never release it.
        fiber.interruptUnsafe();
        resume(Effect.fail(onTimeout()));
      }, millis);
      const unobserve = fiber.addObserver((exit) => {
        clearTimeout(timer);
        resume(exit);
      });
      return cancels ? Fiber.interrupt(fiber) : Fiber.await(fiber);
    }),
  );
