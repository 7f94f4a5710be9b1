/**
 * Lends the connections of a pool to work that must end in time, whatever the database does. No timeout of PostgreSQL's ends
 * anything once its processes are stopped, or once a firewall has forgotten the connection.
 */
import type { PgConnection } from "@effect/sql-pg/PgConnection";
import type { PgPool } from "@effect/sql-pg/PgPool";
import { Effect, Fiber, type Context } from "effect";
import { SqlError } from "effect/sql";
import type { RoundRobin } from "./RoundRobin.ts";

/** A chatbot; or, for what belongs to no chatbot alone, which chats and entries never do, the operator. */
export type Tenant = number | "operator";

export interface Lending {
  /** Does the work on a connection. */
  readonly use: <A, E, R>(
    tenant: Tenant,
    work: (connection: PgConnection) => Effect.Effect<A, E, R>,
  ) => Effect.Effect<A, E | SqlError.SqlError, R>;
}

/**
 * When the latest statement that was not answered in time was sent. Connections that have not answered since then are not lent
 * again: what ended one path ended others, too, and to find out one by one would take a deadline for each.
 */
export interface Silence {
  since: number;
}

interface LendingOptions {
  /** Milliseconds for the waiting and the work together; `null` for work that may take as long as it needs. */
  readonly deadline: number | null;
  /** Whether an interruption cancels the work; otherwise it waits for its end. */
  readonly cancels: boolean;
  /** Who is lent one of the connections next; by default whoever asked first. */
  readonly turns?: RoundRobin<Tenant>;
}

/** Milliseconds after which a connection is replaced: it may lead to a server that others left, such as a standby. */
const lifetime = 30_000;

/** Milliseconds after which a server that is alive has ended a statement itself, by its `statement_timeout`. */
export const silentAfter = 4_500;

/** An answer in time to what has no other deadline, such as the BEGIN of a transaction that may take long. */
export const inTime = <A, E, R>(effect: Effect.Effect<A, E, R>) =>
  within(effect, 5_000, true, () => noAnswer);

export const makeLending = (pool: PgPool, silence: Silence) => {
  const used = new WeakMap<PgConnection, { readonly first: number; answered: number }>();

  const lend = <A, E, R>(
    work: (connection: PgConnection) => Effect.Effect<A, E, R>,
    loan: Loan,
  ): Effect.Effect<A, E | SqlError.SqlError, R> =>
    Effect.flatMap(
      pool.use((connection): Effect.Effect<A | typeof stale, E, R> => {
        const now = Date.now();
        let use = used.get(connection);
        if (use === undefined) used.set(connection, (use = { first: now, answered: now }));
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

  return ({ cancels, deadline, turns }: LendingOptions): Lending => {
    const inTurn = <A, E, R>(tenant: Tenant, work: Effect.Effect<A, E, R>) =>
      turns === undefined ? work : turns(tenant, work, deadline, noConnection);

    return {
      use: (tenant, work) => {
        if (deadline === null) return inTurn(tenant, lend(work, {}));
        const until = Date.now() + deadline;
        return inTurn(
          tenant,
          Effect.suspend(() => {
            const loan: Loan = {};
            return within(lend(work, loan), until - Date.now(), cancels, () => {
              const { connection, since } = loan;
              if (connection === undefined) return noConnection;
              if (Date.now() - since! >= silentAfter) silence.since = since!;
              Effect.runFork(pool.invalidate(connection));
              return noAnswer;
            });
          }),
        );
      },
    };
  };
};

interface Loan {
  connection?: PgConnection;
  since?: number;
}

const stale = Symbol("a connection that is not to be used any more");

/** Nothing was sent. */
const noConnection = new SqlError.SqlError({
  reason: new SqlError.LockTimeoutError({ cause: new Error("no connection was free in time") }),
});

const noAnswer = new SqlError.SqlError({
  reason: new SqlError.StatementTimeoutError({ cause: new Error("no answer in time") }),
});

/**
 * Ends the waiting for work after so many milliseconds. The work is a fiber of its own, so that this holds in uninterruptible
 * regions, too; what it does on a silent connection may end later.
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
