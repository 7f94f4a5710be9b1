/**
 * The clients of one database. Statements that share a pipelined connection queue behind one another, so
 * what may wait for a lock, or must read much, has connections of its own.
 */
import * as PgClient from "@effect/sql-pg/PgClient";
import * as PgConnection from "@effect/sql-pg/PgConnection";
import { Effect, Scope, type Redacted } from "effect";
import type { SqlError } from "effect/sql";
import { makeBoundSession } from "./BoundSession.ts";
import { searchPathOf } from "./Granted.ts";
import type { Search } from "./chats/ChatSearch.ts";
import { roundRobin } from "./database/RoundRobin.ts";
import { plainSession, type Session } from "./Session.ts";
import { types } from "./Types.ts";

export interface Clients {
  /**
   * For reads that are quick and wait for nobody, pipelined unless row security binds them. Each has one good plan,
   * whatever its parameters; to plan it anew would take longer than to run it.
   */
  readonly reads: Session;
  /** For what takes locks; gives up on one that is held for long. Its connections are lent to chatbots by turn. */
  readonly writes: Session;
  /** For lists that read much. Two run at a time; one that waits or runs for longer than ten seconds ends. */
  readonly bulk: Session;
  /** For erasures and sums: nothing ends them. */
  readonly patient: Session;
  /**
   * For exports and imports, each on a connection for as long as whoever reads the records, or gives them, likes; so
   * there are as many as it takes, or one could wait for another for ever.
   */
  readonly archives: Session;
  /** A connection to listen on. */
  readonly listener: Effect.Effect<PgConnection.PgConnection, SqlError.SqlError, Scope.Scope>;
  /** Where searches look. */
  readonly searched: Search["from"];
}

interface ConnectionOptions {
  readonly url: Redacted.Redacted;
  readonly schema: string;
  /** Whether a connection keeps the plans of its statements, `true` by default. */
  readonly prepare?: boolean | undefined;
}

export interface ClientOptions extends ConnectionOptions {
  /** Connections for reads, and as many for writes. */
  readonly maxConnections: number;
  /** Whether each statement must tell the database whose rows it is about. */
  readonly rowSecurity?: boolean | undefined;
}

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
    // Not the role's: who must not wait for long sets its own.
    lock_timeout: "0",
    ...settings,
  },
});

/** One connection for migrations . */
export const makeMigrator = (options: ConnectionOptions) =>
  PgClient.make(configOf(options, 1, unhurried));

/** For what may take, and wait, as long as it needs. */
const unhurried = {
  statement_timeout: "0",
  idle_in_transaction_session_timeout: "0",
};

interface PoolOptions {
  readonly most: number;
  /** Whether statements share connections where row security does not bind them. */
  readonly multiplex?: boolean;
  /**
   * Whether a statement that row security binds is over so soon that it may be sent with its transaction; any other is
   * cancelled when nobody waits for it any more.
   */
  readonly inOneGo?: boolean;
  /** Whether a commit may take as long as it needs. */
  readonly isPatient?: boolean;
}

const bulkConnections = 2;

/** Nothing is connected before the first statement. */
export const makeClients = Effect.fnUntraced(function* (options: ClientOptions) {
  // Closed as a whole, when all that began later is over: a pool whose scope is being closed connects no more, and who
  // waits for a connection waits for ever.
  const pools = yield* Effect.acquireRelease(Scope.make("parallel"), Scope.close);
  const { maxConnections, rowSecurity = false } = options;
  const session = (
    { inOneGo = false, isPatient = false, most, multiplex = false }: PoolOptions,
    settings: Readonly<Record<string, string>>,
  ) => {
    // The pool ends what is idle. Before version 14 nobody knows the setting: who migrates looks at the version.
    const config = configOf(options, most, { idle_session_timeout: "0", ...settings });
    const made = rowSecurity
      ? makeBoundSession(config, { inOneGo, isPatient })
      : Effect.map(PgClient.make({ ...config, multiplex }), (sql) =>
          plainSession(sql, { isPatient }),
        );
    return Scope.provide(made, pools);
  };
  // A client that vanished in the middle of a transaction must not keep its locks.
  const idle = { idle_in_transaction_session_timeout: "30s" };
  // Through indexes, and so in order, whatever is known of the tables.
  const inOrder = {
    ...unhurried,
    // What a plan for the average chatbot costs in a large one among many small ones depends on its size.
    plan_cache_mode: "force_custom_plan",
    enable_seqscan: "off",
    enable_bitmapscan: "off",
  };
  const clients: Clients = {
    searched: rowSecurity ? "own_chat" : "chat",
    reads: yield* session(
      { most: maxConnections, multiplex: true, inOneGo: true },
      {
        statement_timeout: "30s",
        plan_cache_mode: "force_generic_plan",
        // A plan that was made when the tables were small must be right when they are large.
        enable_seqscan: "off",
        enable_bitmapscan: "off",
        ...idle,
      },
    ),
    writes: roundRobin(
      yield* session(
        { most: maxConnections, inOneGo: true },
        // A process that stands still in the middle of a transaction must not outlast a turn's lease.
        { statement_timeout: "30s", lock_timeout: "2s", idle_in_transaction_session_timeout: "5s" },
      ),
      maxConnections,
    ),
    bulk: roundRobin(
      yield* session(
        { most: bulkConnections },
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
      bulkConnections,
      "10 seconds",
    ),
    patient: yield* session({ most: 2, isPatient: true }, inOrder),
    archives: yield* session({ most: 1_000, isPatient: true }, inOrder),
    listener: PgConnection.make(configOf(options, 1, { idle_session_timeout: "0" })),
  };
  return clients;
});
