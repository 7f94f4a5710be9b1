/**
 * Lends the connections of a pool, and ends each loan at its deadline. No timeout of PostgreSQL ends a statement whose
 * server is frozen, or whose connection a firewall has dropped.
 */
import type { PgConnection } from "@effect/sql-pg/PgConnection";
import type { PgPool } from "@effect/sql-pg/PgPool";
import { Context, Effect, Fiber } from "effect";
import { SqlError } from "effect/sql";
import type { RoundRobin } from "./RoundRobin.ts";

/** A chatbot; or the operator, for rows that belong to no chatbot. */
export type Tenant = number | "operator";

export interface Lending {
  /** Runs the work on a connection. */
  readonly use: <A, E, R>(
    tenant: Tenant,
    work: (connection: PgConnection) => Effect.Effect<A, E, R>,
  ) => Effect.Effect<A, E | SqlError.SqlError, R>;
}

/** The end of work that consists of several statements, in milliseconds since the epoch. */
const WorkDeadline = Context.Reference("@parley/store-pg/WorkDeadline", {
  defaultValue: () => Infinity,
});

/** Milliseconds within which a creation, a take or a quick read is answered, whatever the database does. */
export const quickDeadline = 5_000;

/** Gives all statements of the work so many milliseconds together, besides the deadline of each. */
export const endAfter =
  (millis: number) =>
  <A, E, R>(work: Effect.Effect<A, E, R>) =>
    Effect.suspend(() => Effect.provideService(work, WorkDeadline, Date.now() + millis));

/** Milliseconds that are left of {@link endAfter}. */
export const timeLeft = Effect.map(WorkDeadline, (deadline) => deadline - Date.now());

/**
 * The time at which a statement was sent that got no answer in time; the latest one, for all pools. The pools replace
 * connections that have not answered since. When one connection is dead, the others often are: to find out one by one
 * would cost a deadline each.
 */
export interface Silence {
  since: number;
}

export interface LendingOptions {
  /** Milliseconds for the waiting and the work together. */
  readonly deadline: number;
  /** Whether an interruption cancels the work; otherwise it waits for the end of the work. */
  readonly cancels: boolean;
  /** The order in which tenants get a connection; that of arrival by default. */
  readonly turns?: RoundRobin<Tenant>;
}

/** Milliseconds after which a connection is replaced: it may lead to a former primary that has become a standby. */
const lifetime = 30_000;

/** Milliseconds within which a live server answers: its `statement_timeout` is shorter. */
const silentAfter = 4_500;

/** Gives up on a short statement that has no other deadline, such as BEGIN, after five seconds. */
export const inTime = <A, E, R>(statement: Effect.Effect<A, E, R>) =>
  within(statement, quickDeadline, true, () => noAnswer);

/** A loan: its connection, once there is one, and the time since when. */
interface Loan {
  connection?: PgConnection;
  since?: number;
}

const stale = Symbol("a connection to replace");

export const makeLending = (
  pool: PgPool,
  silence: Silence,
  { cancels, deadline, turns }: LendingOptions,
): Lending => {
  const uses = new WeakMap<PgConnection, { readonly first: number; answered: number }>();

  const lend = <A, E, R>(
    work: (connection: PgConnection) => Effect.Effect<A, E, R>,
    loan: Loan,
  ): Effect.Effect<A, E | SqlError.SqlError, R> =>
    Effect.flatMap(
      pool.use((connection): Effect.Effect<A | typeof stale, E, R> => {
        const now = Date.now();
        let use = uses.get(connection);
        if (use === undefined) uses.set(connection, (use = { first: now, answered: now }));
        if (now - use.first >= lifetime || use.answered <= silence.since) {
          return Effect.as(pool.invalidate(connection), stale);
        }
        loan.connection = connection;
        loan.since = now;
        return Effect.map(work(connection), (result) => {
          use.answered = Date.now();
          return result;
        });
      }),
      (result) => (result === stale ? lend(work, loan) : Effect.succeed(result)),
    );

  return {
    use: (tenant, work) =>
      Effect.flatMap(timeLeft, (left) => {
        if (left <= 0) return Effect.fail(noConnection);
        const millis = Math.min(deadline, left);
        const until = Date.now() + millis;
        const lent = Effect.suspend(() => {
          const loan: Loan = {};
          return within(lend(work, loan), until - Date.now(), cancels, () => {
            const { connection, since } = loan;
            if (connection === undefined) return noConnection;
            if (Date.now() - since! >= silentAfter) silence.since = since!;
            Effect.runFork(pool.invalidate(connection));
            return noAnswer;
          });
        });
        return turns === undefined ? lent : turns(tenant, lent, millis, noConnection);
      }),
  };
};

/** Nothing was sent. */
const noConnection = new SqlError.SqlError({
  reason: new SqlError.LockTimeoutError({ cause: new Error("no connection was free in time") }),
});

const noAnswer = new SqlError.SqlError({
  reason: new SqlError.StatementTimeoutError({ cause: new Error("no answer in time") }),
});

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
        resume(Effect.fail(late()));
        fiber.interruptUnsafe();
      }, millis);
      fiber.addObserver((exit) => {
        clearTimeout(timer);
        resume(exit);
      });
      return cancels ? Fiber.interrupt(fiber) : Fiber.await(fiber);
    }),
  );
