/**
 * Checks connections out of the pools, and ends each checkout at its deadline. None of PostgreSQL's timeouts ends a
 * statement if the server is frozen or a firewall has dropped the connection. Operators see the checkouts in metrics.
 */
import type { PgConnection } from "@effect/sql-pg/PgConnection";
import type { PgPool } from "@effect/sql-pg/PgPool";
import { registerGauge } from "@parley/core/ports";
import { Effect } from "effect";
import { SqlError } from "effect/sql";
import { deadlines, noResponseError, timeLeft, within } from "./Deadlines.ts";
import { isDeadlock, lacksConnection } from "./PgErrors.ts";
import type { RoundRobin } from "./RoundRobin.ts";
import type { TlsChoice } from "./TlsFallback.ts";

/**
 * The owner of work that needs a connection: a chatbot's id, an API key's id, or `operator` for work that concerns no
 * single chatbot.
 */
export type Tenant = number | string;

export type Work<A, E, R> = (connection: PgConnection) => Effect.Effect<A, E, R>;

export interface TenantPool {
  readonly use: <A, E, R>(
    tenant: Tenant,
    work: Work<A, E, R>,
  ) => Effect.Effect<A, E | SqlError.SqlError, R>;
}

/** The state of a database, shared by all of its pools. */
export interface DatabaseState {
  /** Whether the database is unavailable. If so, work fails immediately, without a connection. */
  isUnavailable: boolean;
  /**
   * Connections first used at or before this time, as measured by `performance.now`, are replaced: when one is dead,
   * others often are too, and detecting each of them would take a full deadline.
   */
  replaceBefore: number;
}

export interface CheckoutOptions {
  readonly name: string;
  /** The pool's maximum number of connections. */
  readonly size: number;
  /** The deadline for the wait and the work together, in milliseconds. */
  readonly deadline: number;
  /**
   * The time in milliseconds within which a live server responds to a statement, because `statement_timeout` is
   * shorter. `Infinity` if this pool does not tell a dead connection from a slow statement.
   */
  readonly silentAfter: number;
  /** Whether interruption cancels the work. If not, it waits for the work to end, so that no transaction stays open. */
  readonly cancels: boolean;
  /** Grants connections to tenants in rotation. Without slots, requests share the connections, in order of arrival. */
  readonly slots?: RoundRobin<Tenant>;
}

interface Checkout {
  hasSlot: boolean;
  /** `null` while the work is waiting for a connection. */
  connection: PgConnection | null;
  /** The time at which the work got the connection. */
  acquiredAt: number;
}

const needsReplacement = Symbol("the connection needs replacement");

export const makeTenantPool = Effect.fnUntraced(function* (
  pool: PgPool,
  state: DatabaseState,
  { withFallback }: TlsChoice,
  { cancels, deadline, name, silentAfter, size, slots }: CheckoutOptions,
) {
  const context = yield* Effect.context<never>();
  const firstUses = new WeakMap<PgConnection, number>();
  const checkouts = new Set<Checkout>();
  const connections = () => [...checkouts].flatMap(({ connection }) => connection ?? []);
  const gauge = (metric: string, description: string, read: () => number) =>
    registerGauge(context, metric, description, { "db.client.connection.pool.name": name }, read);
  gauge("db.client.connection.max", "Maximum number of connections in the pool", () => size);
  gauge("db.client.connection.used", "Connections in use", () => new Set(connections()).size);
  gauge(
    "db.client.connection.pending_requests",
    "Statements or transactions waiting for a connection",
    () => checkouts.size - connections().length,
  );

  /** Gives the connection to the checkout; returns `false` if the pool must replace the connection instead. */
  const acquire = (connection: PgConnection, checkout: Checkout): boolean => {
    const now = performance.now();
    const firstUse = firstUses.get(connection) ?? now;
    // The pool's `connectionTTL` is not used: it opens a scope for each statement, and relies on the wall clock.
    if (firstUse <= Math.max(state.replaceBefore, now - deadlines.connectionAge)) return false;
    firstUses.set(connection, firstUse);
    checkout.connection = connection;
    checkout.acquiredAt = now;
    return true;
  };

  /**
   * Runs the work on a connection. If PostgreSQL has no slot for another connection, waits for one that the pool has. If
   * it has none, tries a little longer: PostgreSQL may still be closing the connection that this one replaces. Also
   * tries again after a deadlock: a migration may lock tables in a different order, and many requests share a statement.
   */
  const run = <A, E, R>(work: Work<A, E, R>, checkout: Checkout) =>
    Effect.suspend(() => {
      const end = performance.now() + deadlines.slot;
      const mayGetOne = () => connections().length > 0 || performance.now() < end;
      let deadlocks = 0;
      const attempt: Effect.Effect<A, E | SqlError.SqlError, R> = Effect.catch(
        pool.use((connection): Effect.Effect<A, E | typeof needsReplacement, R> =>
          acquire(connection, checkout)
            ? work(connection)
            : Effect.andThen(pool.invalidate(connection), Effect.fail(needsReplacement)),
        ),
        (error) => {
          checkout.connection = null;
          if (error === needsReplacement) return attempt;
          const mayPass = isDeadlock(error)
            ? deadlocks++ < 5
            : lacksConnection(error) && mayGetOne();
          return mayPass ? Effect.delay(attempt, 40 + 20 * Math.random()) : Effect.fail(error);
        },
      );
      return attempt;
    });

  /** Has the pool replace the connection of a checkout that reached its deadline, and returns the checkout's error. */
  const expire = ({ acquiredAt, connection }: Checkout) => {
    if (connection === null) return noConnection;
    if (performance.now() - acquiredAt >= silentAfter) state.replaceBefore = acquiredAt;
    Effect.runFork(pool.invalidate(connection));
    return noResponseError;
  };

  const use: TenantPool["use"] = (tenant, work) => {
    const checkOut = Effect.flatMap(timeLeft, (millisLeft) => {
      if (state.isUnavailable) return Effect.fail(databaseUnavailable);
      if (millisLeft <= 0) return Effect.fail(noConnection);
      const checkout: Checkout = { hasSlot: false, connection: null, acquiredAt: 0 };
      checkouts.add(checkout);
      const workInSlot =
        slots === undefined
          ? run(work, checkout)
          : Effect.flatMap(slots.acquire(tenant), () => {
              checkout.hasSlot = true;
              return run(work, checkout);
            });
      const timedWork = within(workInSlot, Math.min(deadline, millisLeft), cancels, () =>
        expire(checkout),
      );
      return Effect.onExit(timedWork, () => {
        checkouts.delete(checkout);
        if (checkout.hasSlot) slots!.release();
        return Effect.void;
      });
    });
    return withFallback(checkOut);
  };
  return { use };
});

const databaseUnavailable = new SqlError.SqlError({
  reason: new SqlError.ConnectionError({
    operation: "connect",
    cause: new Error("the database is unavailable"),
  }),
});
// A lock timeout, which `toStoreErrors` maps to `Overloaded`, and `toStorageUnavailable` to `StorageUnavailable`.
const noConnection = new SqlError.SqlError({
  reason: new SqlError.LockTimeoutError({
    cause: new Error("timed out waiting for a free connection"),
  }),
});
