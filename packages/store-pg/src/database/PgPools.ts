/**
 * The connections to one database. Statements that share a pipelined connection queue behind one another, so what may
 * wait for a lock, or must read much, has connections of its own.
 */
import * as PgClient from "@effect/sql-pg/PgClient";
import * as PgConnection from "@effect/sql-pg/PgConnection";
import * as PgPool from "@effect/sql-pg/PgPool";
import { Effect, Scope, type Redacted } from "effect";
import type { SqlError } from "effect/sql";
import { searchPathOf } from "../Parameters.ts";
import { types } from "../Types.ts";
import { makeLending, type Silence } from "./Lending.ts";
import { makeRoundRobin } from "./RoundRobin.ts";
import {
  makeTenantSession,
  makeTransferSession,
  type Session,
  type Tenant,
  type TransferSession,
} from "./TenantSession.ts";

export interface PgPools {
  /**
   * For reads that are quick and wait for nobody, pipelined unless row security binds them. Each has one good plan,
   * whatever its parameters; to plan it anew would take longer than to run it.
   */
  readonly reads: Session;
  /** For what takes locks; gives up on one that is held for long. Its connections are lent to chatbots by turn. */
  readonly writes: Session;
  /** For lists that read much: ten seconds each, the waiting included. Its connections are lent to chatbots by turn. */
  readonly bulk: Session;
  /** For erasures and sums, on the connections of `bulk`: nothing ends them but a lock that is held for a second. */
  readonly operations: Session;
  /**
   * For an export or import, on a connection of its own: it lasts as long as whoever reads the records, or gives them, likes,
   * and two copies cannot wait for each other.
   */
  readonly transfer: Effect.Effect<TransferSession, SqlError.SqlError, Scope.Scope>;
  /** A connection to listen on. */
  readonly listener: Effect.Effect<PgConnection.PgConnection, SqlError.SqlError, Scope.Scope>;
  /** What searches read: below a policy no index serves LIKE. */
  readonly searched: "chat" | "own_chat";
}

interface ConnectionOptions {
  readonly url: Redacted.Redacted;
  readonly schema: string;
  /** Whether a connection keeps the plans of its statements, `true` by default. */
  readonly prepare?: boolean | undefined;
}

export interface PoolOptions extends ConnectionOptions {
  /** All of them but those of exports and imports; {@link fewestConnections} at least. */
  readonly maxConnections: number;
  readonly rowSecurity?: boolean | undefined;
}

const [bulkReaders, listeners] = [2, 1];

/** Two that read, two for bulk, one that listens and one that writes. */
export const fewestConnections = 6;

const configOf = (
  { prepare, schema, url }: ConnectionOptions,
  maxConnections: number,
  settings: Readonly<Record<string, string>>,
): PgClient.PgPoolConfig => ({
  url,
  prepare,
  types,
  maxConnections,
  applicationName: "parley",
  // Shorter than any deadline, so that work fails because nobody can connect, and not because it waited.
  connectTimeout: "4 seconds",
  keepAlive: "10 seconds",
  startupParameters: {
    search_path: searchPathOf(schema),
    // Pages of many chats are expected to be dear and are not: to compile one would take longer than all else.
    jit: "off",
    // What waited for a lock must see what its holder wrote.
    default_transaction_isolation: "read committed",
    row_security: "on",
    // The settings of the role or the database are for others.
    lock_timeout: "0",
    ...settings,
  },
});

/** For what may take, and wait, as long as it needs. */
const unhurried = { statement_timeout: "0", idle_in_transaction_session_timeout: "0" };

/** One connection for migrations. */
export const makeMigrator = (options: ConnectionOptions) =>
  PgClient.make(configOf(options, 1, unhurried));

/** Nothing is connected before the first statement. */
export const makePools = Effect.fnUntraced(function* (
  options: PoolOptions,
  { bulkDeadline = 10_000 } = {},
) {
  // Closed as a whole, when all that began later is over: a pool whose scope is being closed connects no more, and whoever
  // waits for a connection waits for ever.
  const scope = yield* Effect.acquireRelease(Scope.make("parallel"), Scope.close);
  const { rowSecurity = false } = options;
  const silence: Silence = { since: 0 };
  const lendingOf = (
    most: number,
    multiplex: boolean,
    settings: Readonly<Record<string, string>>,
  ) => {
    // The pool ends what is idle.
    const config = configOf(options, most, { idle_session_timeout: "0", ...settings });
    // With row security what belongs together is pipelined, on a connection that is lent to one fiber at a time.
    const sharing = rowSecurity ? { multiplex: true, multiplexConcurrency: 1 } : { multiplex };
    return PgPool.make({ ...config, ...sharing }).pipe(
      Scope.provide(scope),
      Effect.map((pool) => makeLending(pool, silence)),
    );
  };

  const serving = Math.max(fewestConnections, options.maxConnections) - bulkReaders - listeners;
  // Two pipelined readers keep PostgreSQL busy. Where each serves one statement at a time, there are as many as writers.
  const readers = rowSecurity ? Math.floor(serving / 2) : 2;
  const writers = serving - readers;
  // A client that vanished in the middle of a transaction must not keep its locks.
  const idle = { idle_in_transaction_session_timeout: "30s" };
  // Through indexes, whatever is known of the tables: a plan that was made when they were small must be right later.
  const byIndex = { enable_seqscan: "off", enable_bitmapscan: "off" };
  // What a plan for the average chatbot costs in a large one among many small ones depends on its size.
  const customPlans = { plan_cache_mode: "force_custom_plan" };

  const lendReader = yield* lendingOf(readers, true, {
    statement_timeout: "4s",
    plan_cache_mode: "force_generic_plan",
    ...byIndex,
    ...idle,
  });
  const lendWriter = yield* lendingOf(writers, false, {
    statement_timeout: "4s",
    lock_timeout: "1500ms",
    // A process that stands still in the middle of a transaction must not outlast a turn's lease.
    idle_in_transaction_session_timeout: "5s",
  });
  const lendBulk = yield* lendingOf(bulkReaders, false, {
    statement_timeout: "10s",
    ...customPlans,
    max_parallel_workers_per_gather: "0",
    // With less, what a common word finds among ten million is noted by whole pages and searched twice.
    work_mem: "32MB",
    ...idle,
  });
  const bulkTurns = makeRoundRobin<Tenant>(bulkReaders);

  const pools: PgPools = {
    searched: rowSecurity ? "own_chat" : "chat",
    reads: makeTenantSession(lendReader({ deadline: 5_000, cancels: false }), {
      rowSecurity,
      inOneGo: true,
    }),
    writes: makeTenantSession(
      lendWriter({ deadline: 5_000, cancels: false, turns: makeRoundRobin(writers) }),
      { rowSecurity, inOneGo: true },
    ),
    bulk: makeTenantSession(lendBulk({ deadline: bulkDeadline, cancels: true, turns: bulkTurns }), {
      rowSecurity,
    }),
    operations: makeTenantSession(lendBulk({ deadline: null, cancels: true, turns: bulkTurns }), {
      rowSecurity,
      settings: { statement_timeout: "0", lock_timeout: "1s", ...byIndex },
    }),
    transfer: PgConnection.make(
      configOf(options, 1, { ...unhurried, ...customPlans, ...byIndex }),
    ).pipe(Effect.map((connection) => makeTransferSession(connection, { rowSecurity }))),
    listener: PgConnection.make(configOf(options, 1, { idle_session_timeout: "0" })),
  };
  return pools;
});
