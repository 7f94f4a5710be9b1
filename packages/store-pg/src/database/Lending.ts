/**
 * Lends the connections of the pools, and ends each loan at its deadline. No timeout of PostgreSQL ends a statement
 * whose server is frozen, or whose connection a firewall has dropped. Operators see the loans in metrics, and a lost
 * database in the log.
 */
import type { PgConnection } from "@effect/sql-pg/PgConnection";
import type { PgPool } from "@effect/sql-pg/PgPool";
import { describeCause, registerGauge } from "@parley/core/ports";
import { Cause, Context, Effect, Exit, Fiber } from "effect";
import { SqlError } from "effect/sql";
import { isLost } from "./PgErrors.ts";
import type { RoundRobin } from "./RoundRobin.ts";

/** A chatbot; or the operator, for rows that belong to no chatbot. */
export type Tenant = number | "operator";

export type Work<A, E, R> = (connection: PgConnection) => Effect.Effect<A, E, R>;

export interface Lending {
  /** Runs the work on a connection. */
  readonly use: <A, E, R>(
    tenant: Tenant,
    work: Work<A, E, R>,
  ) => Effect.Effect<A, E | SqlError.SqlError, R>;
}

/** The end of work that consists of several statements, on the clock of `performance.now`. */
const WorkDeadline = Context.Reference("@parley/store-pg/WorkDeadline", {
  defaultValue: () => Infinity,
});

/** Milliseconds within which a creation, a take or a quick read is answered, whatever the database does. */
export const quickDeadline = 5_000;

/** Gives all statements of the work so many milliseconds together, besides the deadline of each. */
export const endAfter =
  (millis: number) =>
  <A, E, R>(work: Effect.Effect<A, E, R>) =>
    Effect.suspend(() => Effect.provideService(work, WorkDeadline, performance.now() + millis));

/** Milliseconds that are left of {@link endAfter}. */
export const timeLeft = Effect.map(WorkDeadline, (deadline) => deadline - performance.now());

export interface LendingOptions {
  /** The pool in metrics. */
  readonly name: string;
  /** The most connections of the pool, for metrics. */
  readonly size?: number;
  /** Milliseconds for the waiting and the work together. */
  readonly deadline: number;
  /**
   * Milliseconds within which a live server answers a statement, because its `statement_timeout` is shorter. `Infinity`:
   * this pool does not tell a dead connection from a slow statement.
   */
  readonly silentAfter: number;
  /** Whether an interruption cancels the work. Otherwise it waits for the end, so that no transaction stays open. */
  readonly cancels: boolean;
  /** The order in which tenants get a connection; that of arrival by default. */
  readonly turns?: RoundRobin<Tenant>;
}

/** Milliseconds after which a connection is replaced: it may lead to a former primary that has become a standby. */
const lifetime = 30_000;

interface Loan {
  hasTurn?: boolean;
  connection?: PgConnection;
  /** The time at which the work got the connection. */
  since?: number;
}

const stale = Symbol("a connection to replace");

/** Lends the connections of several pools to one database. */
export const makeLender = Effect.map(Effect.context<never>(), (context) => {
  /**
   * The time at which a statement was sent that got no answer. Connections that are older are replaced: when one is
   * dead, others often are, and to find out one by one would cost a deadline each.
   */
  let silentSince = -Infinity;
  let lost = false;
  /** Whether the database is known to be away: work fails without a connection. */
  let isAway = false;
  const setAway = (away: boolean) => void (isAway = away);
  /** Replaces the connections that are open now. */
  const renew = () => void (silentSince = performance.now());

  /** Logs the loss of the database once, and its return. */
  const note = (exit: Exit.Exit<unknown, unknown>): Effect.Effect<void> => {
    if (Exit.isSuccess(exit)) {
      if (!lost) return Effect.void;
      lost = false;
      return Effect.logInfo("The database can be used again");
    }
    const error = Cause.squash(exit.cause);
    if (lost || !(error === noAnswer || isLost(error))) return Effect.void;
    lost = true;
    const line = Effect.logError("The database was lost");
    return Effect.annotateLogs(line, "reason", describeCause(error));
  };

  const lendFrom = (
    pool: PgPool,
    { cancels, deadline, name, silentAfter, size = 1, turns }: LendingOptions,
  ): Lending => {
    const firstUses = new WeakMap<PgConnection, number>();
    const loans = new Set<Loan>();
    const lent = () => [...loans].flatMap(({ connection }) => connection ?? []);
    const gauge = (metric: string, description: string, read: () => number) =>
      registerGauge(context, metric, description, { "db.client.connection.pool.name": name }, read);
    gauge("db.client.connection.max", "The most connections of the pool", () => size);
    gauge("db.client.connection.used", "Connections in use", () => new Set(lent()).size);
    gauge("db.client.connection.pending_requests", "Statements waiting for a connection", () => {
      return loans.size - lent().length;
    });

    const lend = <A, E, R>(
      work: Work<A, E, R>,
      loan: Loan,
    ): Effect.Effect<A, E | SqlError.SqlError, R> =>
      Effect.flatMap(
        pool.use((connection): Effect.Effect<A | typeof stale, E, R> => {
          const now = performance.now();
          const firstUse = firstUses.get(connection) ?? now;
          firstUses.set(connection, firstUse);
          if (firstUse <= Math.max(silentSince, now - lifetime)) {
            return Effect.as(pool.invalidate(connection), stale);
          }
          loan.connection = connection;
          loan.since = now;
          return work(connection);
        }),
        (result) => (result === stale ? lend(work, loan) : Effect.succeed(result)),
      );

    const lendInTurn = <A, E, R>(tenant: Tenant, work: Work<A, E, R>, loan: Loan) =>
      turns === undefined
        ? lend(work, loan)
        : Effect.flatMap(turns.take(tenant), () => {
            loan.hasTurn = true;
            return lend(work, loan);
          });

    /** The error of a loan that ends at its deadline. The pool replaces the connection. */
    const overdue = ({ connection, since }: Loan) => {
      if (connection === undefined) return noConnection;
      const isSilent = performance.now() - since! >= silentAfter;
      if (isSilent) silentSince = since!;
      Effect.runFork(pool.invalidate(connection));
      return isSilent ? noAnswer : tooSlow;
    };

    return {
      use: (tenant, work) =>
        Effect.flatMap(timeLeft, (left) => {
          if (isAway) return Effect.fail(databaseAway);
          if (left <= 0) return Effect.fail(noConnection);
          const loan: Loan = {};
          loans.add(loan);
          const lent = lendInTurn(tenant, work, loan);
          const used = within(lent, Math.min(deadline, left), cancels, () => overdue(loan));
          return Effect.onExit(used, (exit) => {
            loans.delete(loan);
            if (loan.hasTurn === true) turns!.end();
            return note(exit);
          });
        }),
    };
  };

  return { note, lendFrom, renew, setAway };
});

/** Nothing was sent. */
const databaseAway = new SqlError.SqlError({
  reason: new SqlError.ConnectionError({
    operation: "connect",
    cause: new Error("the database does not answer"),
  }),
});
const noConnection = new SqlError.SqlError({
  reason: new SqlError.LockTimeoutError({ cause: new Error("no connection was free in time") }),
});

const timeout = (message: string) =>
  new SqlError.SqlError({
    reason: new SqlError.StatementTimeoutError({ cause: new Error(message) }),
  });
const noAnswer = timeout("no answer in time");
const tooSlow = timeout("the statement takes too long");

/** Gives up on a short statement that has no other deadline, such as BEGIN. */
export const inTime = <A, E, R>(statement: Effect.Effect<A, E, R>, millis = quickDeadline) =>
  within(statement, millis, true, () => noAnswer);

/**
 * Stops waiting for the work after so many milliseconds. The work has a fiber of its own and the timer is Node's, so
 * that this holds in uninterruptible regions; work on a silent connection may end later.
 */
const within = <A, E, R, E2>(
  work: Effect.Effect<A, E, R>,
  millis: number,
  cancels: boolean,
  late: () => E2,
): Effect.Effect<A, E | E2, R> =>
  Effect.contextWith((context: Context.Context<R>) =>
    Effect.callback<A, E | E2>((resume) => {
      const fiber = Effect.runForkWith(context)(work);
      const timer = setTimeout(() => {
        unobserve();
        // First, so that work that waits for its turn gets none from what follows.
        fiber.interruptUnsafe();
        resume(Effect.fail(late()));
      }, millis);
      const unobserve = fiber.addObserver((exit) => {
        clearTimeout(timer);
        resume(exit);
      });
      return cancels ? Fiber.interrupt(fiber) : Fiber.await(fiber);
    }),
  );
