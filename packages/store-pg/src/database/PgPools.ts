/**
 * The connections to one database. Statements that share a pipelined connection queue behind one another, so what may
 * wait for a lock, or must read much, has connections of its own.
 */
import * as PgClient from "@effect/sql-pg/PgClient";
import * as PgConnection from "@effect/sql-pg/PgConnection";
import { Effect, Scope, type Redacted } from "effect";
import type { SqlError } from "effect/sql";
import { fairSession } from "../FairSession.ts";
import { searchPathOf } from "../Parameters.ts";
import { types } from "../Types.ts";
import { makeTenantSession, type Session } from "./TenantSession.ts";

export interface PgPools {
  /**
   * For reads that are quick and wait for nobody, pipelined unless row security binds them. Each has one good plan,
   * whatever its parameters; to plan it anew would take longer than to run it.
   */
  readonly reads: Session;
  /** For what takes locks; gives up on one that is held for long. Its connections are lent to chatbots by turn. */
  readonly writes: Session;
  /** For lists that read much: ten seconds each. */
  readonly bulk: Session;
  /**
   * For what operators do, which may take as long as it needs: erasures, sums, exports and imports. Each has a connection of
   * its own, so that no two copies can wait for each other.
   */
  readonly operations: Session;
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
  /** All of them but those of operations; two of them read long lists, and one listens. */
  readonly maxConnections: number;
  readonly rowSecurity?: boolean | undefined;
}

const [readers, bulkReaders, listeners] = [2, 2, 1];

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
  connectTimeout: "5 seconds",
  keepAlive: "10 seconds",
  // Whatever a connection ran into (a dead path, a server that has become read-only), it is soon over.
  connectionTTL: "30 seconds",
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
export const makePools = Effect.fnUntraced(function* (options: PoolOptions) {
  // Closed as a whole, when all that began later is over: a pool whose scope is being closed connects no more, and whoever
  // waits for a connection waits for ever.
  const scope = yield* Effect.acquireRelease(Scope.make("parallel"), Scope.close);
  const { maxConnections, rowSecurity = false } = options;
  const session = (
    most: number,
    manner: Omit<Parameters<typeof makeTenantSession>[1], "rowSecurity"> & {
      readonly multiplex?: boolean;
    },
    settings: Readonly<Record<string, string>>,
  ) => {
    // The pool ends what is idle.
    const config = configOf(options, most, { idle_session_timeout: "0", ...settings });
    return makeTenantSession(
      { ...config, multiplex: manner.multiplex ?? false },
      { ...manner, rowSecurity },
    ).pipe(Scope.provide(scope));
  };
  const writers = Math.max(1, maxConnections - readers - bulkReaders - listeners);
  // A client that vanished in the middle of a transaction must not keep its locks.
  const idle = { idle_in_transaction_session_timeout: "30s" };
  // Through indexes, whatever is known of the tables: a plan that was made when they were small must be right later.
  const byIndex = { enable_seqscan: "off", enable_bitmapscan: "off" };
  const pools: PgPools = {
    searched: rowSecurity ? "own_chat" : "chat",
    reads: yield* session(
      // Row security lends each to one statement at a time.
      rowSecurity ? Math.max(readers, writers) : readers,
      { multiplex: true, inOneGo: true },
      { statement_timeout: "30s", plan_cache_mode: "force_generic_plan", ...byIndex, ...idle },
    ),
    writes: fairSession(
      yield* session(
        writers,
        { inOneGo: true },
        // A process that stands still in the middle of a transaction must not outlast a turn's lease.
        { statement_timeout: "30s", lock_timeout: "2s", idle_in_transaction_session_timeout: "5s" },
      ),
      writers,
    ),
    bulk: yield* session(
      bulkReaders,
      {},
      {
        statement_timeout: "10s",
        // What a search finds decides how it is best done.
        plan_cache_mode: "force_custom_plan",
        max_parallel_workers_per_gather: "0",
        // With less, what a common word finds among ten million is noted by whole pages and searched twice.
        work_mem: "32MB",
        ...idle,
      },
    ),
    operations: yield* session(
      1_000,
      { isPatient: true },
      // What a plan for the average chatbot costs in a large one among many small ones depends on its size.
      { ...unhurried, plan_cache_mode: "force_custom_plan", ...byIndex },
    ),
    listener: PgConnection.make(configOf(options, 1, { idle_session_timeout: "0" })),
  };
  return pools;
});
