/**
 * The connections to the database. Statements on a pipelined connection wait for one another, so that statements which
 * may wait for a lock, or read much, have connections of their own.
 */
import * as PgClient from "@effect/sql-pg/PgClient";
import * as PgConnection from "@effect/sql-pg/PgConnection";
import * as PgPool from "@effect/sql-pg/PgPool";
import { Effect, Scope, type Redacted } from "effect";
import type { SqlError } from "effect/sql";
import { watchAvailability } from "./Availability.ts";
import { transportOf, withFallback, type Transport } from "./DatabaseAddress.ts";
import { makeLender, type Lending, type LendingOptions } from "./Lending.ts";
import { quoteSchema, types } from "./PgParams.ts";
import { makeRoundRobin } from "./RoundRobin.ts";
import {
  makeDedicatedSession,
  makeTenantSession,
  type DedicatedSession,
  type Session,
} from "./TenantSession.ts";
import { makeWriteState, type WriteState } from "./WriteState.ts";

/** A connection that is opened for the scope. */
type Connected<A> = Effect.Effect<A, SqlError.SqlError, Scope.Scope>;

export interface PgPools extends Omit<WriteState, "guard"> {
  /**
   * For quick reads, which wait for no lock. They are pipelined, except with row security: transactions would mix on a
   * shared connection. Each statement has one good plan, whatever its parameters: to plan it anew would take longer
   * than to run it.
   */
  readonly reads: Session;
  /**
   * For statements that take locks. Gives up on a lock after 1.5 seconds. Serves chatbots in turn. Fails at once while the
   * database cannot be written.
   */
  readonly writes: Session;
  /** For lists that read much: ten seconds each, with the waiting. Serves chatbots in turn. */
  readonly bulk: Session;
  /** For an erasure, which may take long. Gives up on a lock after a second. */
  readonly operation: Connected<Session>;
  /** For an export, an import or a sum, which may take long. Two copies must not wait for each other. */
  readonly transfer: Connected<DedicatedSession>;
  /** For LISTEN. */
  readonly listener: Connected<PgConnection.PgConnection>;
  /** The relation that searches read: under a policy no index serves LIKE. */
  readonly searched: "chat" | "own_chat";
}

export interface PoolOptions {
  readonly url: Redacted.Redacted;
  readonly authorities?: string | Array<string> | undefined;
  readonly schema: string;
  readonly pooler?: boolean | undefined;
  /** At least {@link fewestConnections}; dedicated connections do not count. */
  readonly maxConnections: number;
  readonly rowSecurity?: boolean | undefined;
}

const bulkReaders = 2;

/**
 * Shorter than `quickDeadline`: a request that fails on a silent connection must leave none to the next. In
 * milliseconds.
 */
const statementDeadline = 4_800;
/** More than the `statement_timeout` of reads and writes. */
const silentAfter = 4_500;

/** Milliseconds within which a list that reads much is answered. */
export const bulkDeadline = 10_000;

/** Two for reads, two for bulk, one for writes and the listener. */
const fewestConnections = 6;

const configOf = (
  { authorities, pooler = false, schema, url }: PoolOptions,
  maxConnections: number,
  settings: Readonly<Record<string, string>>,
  more: Pick<PgPool.Config, "multiplex" | "multiplexConcurrency"> = {},
): PgPool.Config => {
  const transport = transportOf(url) as Transport;
  return {
    url: transport.url,
    // The driver reads it for each connection.
    get ssl() {
      return transport.ssl && { ...transport.ssl, ...(authorities && { ca: authorities }) };
    },
    prepare: !pooler,
    types,
    maxConnections,
    applicationName: transport.applicationName,
    // Shorter than any deadline, so that work fails because nobody can connect, and not because it waited.
    connectTimeout: "4 seconds",
    keepAlive: "10 seconds",
    ...more,
    // A pooler refuses them; `checkDatabase` asks for settings of the role.
    startupParameters: pooler
      ? {}
      : // Each overrides a setting of the role or the database.
        {
          search_path: quoteSchema(schema),
          // The planner overestimates pages of many chats: to compile one would take longer than to run it.
          jit: "off",
          // A statement that waited for a lock must see what the holder of the lock wrote.
          default_transaction_isolation: "read committed",
          row_security: "on",
          lock_timeout: "0",
          ...settings,
        },
  };
};

const noTimeouts = { statement_timeout: "0", idle_in_transaction_session_timeout: "0" };

/** One connection for migrations and checks, and one to watch a migration that takes long. */
export const makeMigrationClient = (options: PoolOptions) =>
  PgClient.make(configOf(options, 2, noTimeouts));

/** Opens no connection before the first statement. */
export const makePools = Effect.fnUntraced(function* (
  options: PoolOptions,
  /** Milliseconds for a list that reads much, with the waiting. */
  { bulk: bulkMillis = bulkDeadline } = {},
) {
  // Closed as a whole, after everything that began later: a pool whose scope is closing opens no connection, and work
  // that waits for one would never end.
  const scope = yield* Effect.acquireRelease(Scope.make("parallel"), Scope.close);
  const { rowSecurity = false } = options;
  const connecting = withFallback(options.url);
  const { database } = transportOf(options.url) as Transport;
  const session = { rowSecurity, database };
  const { lendFrom, note, renew, setAway } = yield* makeLender;
  // A process that vanished within a transaction must not keep its locks: creations wait for those of an erasure.
  const idle = { idle_in_transaction_session_timeout: "5s" };
  const lend = (
    config: Pick<PgPool.Config, "multiplex" | "multiplexConcurrency">,
    connections: number,
    settings: Readonly<Record<string, string>>,
    lending: LendingOptions,
  ) =>
    // The pool closes idle connections itself.
    PgPool.make(
      configOf(options, connections, { idle_session_timeout: "0", ...idle, ...settings }, config),
    ).pipe(
      Scope.provide(scope),
      Effect.map((pool): Lending => {
        const { use } = lendFrom(pool, { ...lending, size: connections });
        return { use: (tenant, work) => connecting(use(tenant, work)) };
      }),
    );
  /** Without pipelining, statements are sent one by one, and can be canceled. */
  const pipelined = { multiplex: true, multiplexConcurrency: rowSecurity ? 1 : 32 };

  const serving = Math.max(fewestConnections, options.maxConnections) - bulkReaders - 1;
  // Two pipelined readers keep PostgreSQL busy. Readers of one statement at a time are as many as writers.
  const readers = rowSecurity ? Math.floor(serving / 2) : 2;
  const writers = serving - readers;
  // Plans by index stay right when the tables grow.
  const byIndex = { enable_seqscan: "off", enable_bitmapscan: "off" };
  // A plan for the average chatbot does not suit a large one.
  const customPlans = { plan_cache_mode: "force_custom_plan" };

  const reads = yield* lend(
    pipelined,
    readers,
    { statement_timeout: "4s", plan_cache_mode: "force_generic_plan", ...byIndex },
    { name: "reads", deadline: statementDeadline, silentAfter, cancels: false },
  );
  const writes = yield* lend(
    // A pipelined pool takes longer to recover from a killed connection: only where every statement is a transaction.
    rowSecurity ? pipelined : {},
    writers,
    {
      statement_timeout: "4s",
      lock_timeout: "1500ms",
      plan_cache_mode: "force_generic_plan",
      ...byIndex,
    },
    {
      name: "writes",
      deadline: statementDeadline,
      silentAfter,
      cancels: false,
      turns: makeRoundRobin(writers),
    },
  );
  const bulk = yield* lend(
    {},
    bulkReaders,
    // With less memory, a search for a common word among ten million chats is rechecked page by page.
    {
      statement_timeout: "10s",
      max_parallel_workers_per_gather: "0",
      work_mem: "32MB",
      ...customPlans,
    },
    {
      name: "bulk",
      deadline: bulkMillis,
      silentAfter: Infinity,
      cancels: true,
      turns: makeRoundRobin(bulkReaders),
    },
  );
  const dedicated = (multiplex: boolean, settings: Readonly<Record<string, string>>) =>
    PgConnection.make(
      configOf(
        options,
        1,
        { ...noTimeouts, ...customPlans, ...byIndex, ...settings },
        { multiplex },
      ),
    ).pipe(
      connecting,
      Effect.map((connection) => makeDedicatedSession(connection, session)),
    );

  const readSession = makeTenantSession(reads, { ...session, pipelined: true });
  const connect = connecting(PgConnection.make(configOf(options, 1, noTimeouts)));
  const { guard, ...writeState } = yield* makeWriteState(connect, readSession, renew);
  yield* watchAvailability(reads, connect, setAway);
  const pools: PgPools = {
    ...writeState,
    reads: readSession,
    writes: makeTenantSession(guard(writes), { ...session, pipelined: true }),
    bulk: makeTenantSession(bulk, session),
    operation: dedicated(true, { lock_timeout: "1s", ...idle }),
    transfer: dedicated(false, {}),
    // It connects again immediately, so that a loss is noted even while there are no requests.
    listener: Effect.onExit(
      connecting(PgConnection.make(configOf(options, 1, { idle_session_timeout: "0" }))),
      note,
    ),
    searched: rowSecurity ? "own_chat" : "chat",
  };
  return pools;
});
