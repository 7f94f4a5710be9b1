/**
 * Time limits for work on the database, and functions that apply them.
 */
import { Context, Effect, Fiber } from "effect";
import { SqlError } from "effect/sql";

/**
 * The limits in milliseconds, in ascending order. Where two limits apply, the one with the cheaper or more precise
 * error must expire first: `test/connections/Deadlines.test.ts` lists the required orders.
 */
export const deadlines = {
  /** How long a pool without connections asks PostgreSQL for one while all slots are in use. */
  slot: 500,
  /** How long an erasure waits for a lock (`lock_timeout`) before it tries again. */
  erasureLock: 1_000,
  /** Timeout for a `select 1` on an open connection, which probes the connection or the database. */
  probe: 1_000,
  /** How long a write waits for a lock (`lock_timeout`). */
  writeLock: 1_500,
  /** Timeout for probing the database on a new connection, after a probe on an open connection has failed. */
  probeOnNewConnection: 2_000,
  /** How long a migration waits for a lock (`lock_timeout`), and so delays other statements, before it tries again. */
  migrationLock: 3_000,
  /** Timeout for opening a connection; also used when probing an unavailable database. */
  connect: 4_000,
  /** PostgreSQL cancels a read or write that runs for this long (`statement_timeout`). The connection stays usable. */
  statement: 4_000,
  /** A connection that has not responded to a read or a write for this long counts as dead. */
  silence: 4_500,
  /** Timeout for one read or write, including the wait for a connection. */
  checkout: 4_800,
  /** Total time for the statements of a creation, a take, or an attempt to append, renew or release. */
  storeCall: 5_000,
  /**
   * How long a session may be idle in a transaction, for example because its process has vanished, before PostgreSQL
   * ends the session (`idle_in_transaction_session_timeout`).
   */
  idleTransaction: 5_000,
  /** Timeout for a long list or a key sweep, including the wait for a connection; also their `statement_timeout`. */
  bulk: 10_000,
  /**
   * The age from which a pooled connection is replaced before its next use: it may lead to a former primary that has
   * become a standby.
   */
  connectionAge: 30_000,
} as const;

/** Formats a time limit as PostgreSQL prints the setting. */
export const toSetting = (millis: number) =>
  millis % 1_000 === 0 ? `${millis / 1_000}s` : `${millis}ms`;

/** The time by which work that consists of several statements must end, on the clock of `performance.now`. */
const WorkDeadline = Context.Reference("@parley/store-pg/WorkDeadline", {
  defaultValue: () => Infinity,
});

/**
 * Limits all statements of the work to this many milliseconds in total, in addition to the deadline of each statement.
 * It does not stop the work itself: checkouts and write batchers read {@link timeLeft}.
 */
export const withDeadline =
  (millis: number) =>
  <A, E, R>(work: Effect.Effect<A, E, R>) =>
    Effect.suspend(() => Effect.provideService(work, WorkDeadline, performance.now() + millis));

/** The milliseconds left until the deadline of the innermost {@link withDeadline}; `Infinity` if there is none. */
export const timeLeft = Effect.map(WorkDeadline, (deadline) => deadline - performance.now());

export const noResponseError = new SqlError.SqlError({
  reason: new SqlError.StatementTimeoutError({
    cause: new Error("the database did not respond in time"),
  }),
});

/** Runs a short statement that has no other deadline, such as BEGIN, and fails if it takes too long. */
export const inTime = <A, E, R>(
  statement: Effect.Effect<A, E, R>,
  millis: number = deadlines.storeCall,
) => within(statement, millis, true, () => noResponseError);

/**
 * Stops waiting for the work after this many milliseconds, even in uninterruptible regions: the work runs in a fiber of
 * its own, and the timer is Node's. Work on a silent connection may end later. With `cancels`, an interruption cancels
 * the work; without it, the interruption waits for the work to end.
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
        // Must precede `resume`, which may free a slot: work waiting for a slot would get it and never release it.
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
