/**
 * The connections to the database. Requests that share a pipelining connection (`multiplex`) wait for one another's
 * statements, so statements that may wait for a lock, or read many rows, run on connections that are not shared.
 */
import * as PgClient from "@effect/sql-pg/PgClient";
import * as PgConnection from "@effect/sql-pg/PgConnection";
import * as PgPool from "@effect/sql-pg/PgPool";
import { Effect, Scope, type Redacted } from "effect";
import { Reactivity } from "effect/reactivity";
import type { SqlError } from "effect/sql";
import { transportOf, type Transport } from "./DatabaseAddress.ts";
import { makeTenantPool, type CheckoutOptions, type DatabaseState } from "./Checkout.ts";
import { deadlines, toSetting } from "./Deadlines.ts";
import { quoteName, types } from "./PgParams.ts";
import { makeRoundRobin } from "./RoundRobin.ts";
import { slotWarnings } from "./ServerChecks.ts";
import {
  makeDedicatedSession,
  makeSession,
  type DedicatedSession,
  type Session,
} from "./Session.ts";
import type { PostgresOptions } from "../PostgresOptions.ts";
import { makeWriteState, type WriteState } from "../writes/WriteState.ts";

/** A session or connection that stays open until the scope closes. */
type Scoped<A> = Effect.Effect<A, SqlError.SqlError, Scope.Scope>;

export interface PgPools extends Omit<WriteState, "guardedPool"> {
  /** For quick reads, which never wait for a lock. Requests share the connections. Each statement keeps one plan. */
  readonly reads: Session;
  /** For statements that take locks. Serves chatbots in rotation. Fails at once while the database refuses writes. */
  readonly writes: Session;
  /** For lists that read many rows, and for sweeping old idempotency keys. Serves chatbots in rotation. */
  readonly bulk: Session;
  /** For an erasure, which may take a long time. */
  readonly erasureSession: Scoped<Session>;
  /**
   * For an export, an import, a usage report, the sizes of chatbots or a user's audit log, which may take a long time.
   * Not pooled: copying a chatbot needs two sessions, and two such copies must not wait for each other.
   */
  readonly exportSession: Scoped<DedicatedSession>;
}

interface PoolOptions extends PostgresOptions {
  readonly schema: string;
  /** Raised to {@link fewestConnections} if lower. */
  readonly maxConnections: number;
}

const [readers, bulkReaders] = [2, 2];
/** One connection is for writes. */
const fewestConnections = readers + bulkReaders + 1;

/** The address for a new connection: the user and the password may have changed since the start. */
const currentUrl = ({ readUrl, url }: PoolOptions): Redacted.Redacted => {
  const current = transportOf(readUrl?.() ?? url);
  return typeof current === "string" ? (transportOf(url) as Transport).url : current.url;
};

/**
 * A pooler rejects or drops `settings`. They are `null` if nobody knows yet whether there is a pooler. With `multiplex`,
 * requests share a connection, on which the driver cannot cancel a statement.
 */
const configOf = (
  options: PoolOptions,
  maxConnections: number,
  settings: Readonly<Record<string, string>> | null,
  multiplex = false,
): PgPool.Config => {
  const { authorities, schema } = options;
  const transport = transportOf(options.url) as Transport;
  const isDirect = settings !== null && transport.isPooler !== true;
  return {
    // Whenever the driver opens a connection, it reads `url`, `ssl` and then, in the same step and once, `stream`.
    get url() {
      return currentUrl(options);
    },
    get ssl() {
      const ssl = transport.tls.next();
      return ssl && { ...ssl, ...(authorities && { ca: authorities }) };
    },
    get stream() {
      transport.tls.noteOpening();
      return undefined;
    },
    prepare: isDirect,
    types,
    maxConnections,
    applicationName: transport.applicationName,
    connectTimeout: deadlines.connect,
    keepAlive: "10 seconds",
    // The driver's default of 16 MiB would make an entry with more text unreadable. PostgreSQL sends at most 1 GiB.
    maxMessageSize: 2 ** 30,
    multiplex,
    multiplexConcurrency: 32,
    // Behind a pooler, `checkDatabase` checks the role's settings instead.
    startupParameters: !isDirect
      ? {}
      : // Each of these overrides a setting of the role or the database.
        {
          search_path: quoteName(schema),
          // In a large chatbot, the planner overestimates the cost of reading a page: compiling the statement would
          // take longer than running it.
          jit: "off",
          // A statement that has waited for a lock must see what the lock's previous holder wrote.
          default_transaction_isolation: "read committed",
          lock_timeout: "0",
          ...settings,
        },
  };
};

const noTimeouts = { statement_timeout: "0", idle_in_transaction_session_timeout: "0" };

/**
 * Finds out whether the URL leads to a pooler in transaction mode, such as PgBouncer. A pooler gives each client a
 * process id of its own, because the client's statements run in several processes.
 */
export const detectPooler = Effect.fnUntraced(function* (options: PoolOptions) {
  const transport = transportOf(options.url) as Transport;
  if (transport.isPooler === undefined) {
    const connection = yield* PgConnection.make(configOf(options, 1, null));
    const [[processId] = []] = yield* connection.queryValues("select pg_backend_pid()");
    transport.isPooler = processId !== connection.processId;
  }
  return transport.isPooler;
}, Effect.scoped);

/** Creates a client with one connection for migrations and checks, and one for watching a long migration. */
export const makeMigrationClient = (options: PoolOptions) =>
  Effect.provide(PgClient.make(configOf(options, 2, noTimeouts)), Reactivity.layer);

/** Creates the pools without waiting for a connection: they open connections on demand. */
export const makePools = Effect.fnUntraced(function* (options: PoolOptions) {
  // The pools close together, after everything that was started later: a pool whose scope is closing opens no
  // connections, so work that waits for a connection would never end.
  const scope = yield* Effect.acquireRelease(Scope.make("parallel"), Scope.close);
  const { database, isPooler, tls } = transportOf(options.url) as Transport;
  const state: DatabaseState = { isUnavailable: false, replaceBefore: -Infinity };
  const makePool = Effect.fnUntraced(function* (
    settings: Readonly<Record<string, string>>,
    checkouts: CheckoutOptions,
  ) {
    // The pool closes idle connections itself.
    const startup = { idle_session_timeout: "0", ...idle, ...settings };
    const isShared = checkouts.slots === undefined;
    const pool = yield* PgPool.make(configOf(options, checkouts.size, startup, isShared)).pipe(
      Scope.provide(scope),
    );
    return yield* makeTenantPool(pool, state, tls, checkouts);
  });

  const size = Math.max(fewestConnections, options.maxConnections);
  const writers = size - readers - bulkReaders;
  const quickSettings = {
    statement_timeout: toSetting(deadlines.statement),
    plan_cache_mode: "force_generic_plan",
    ...byIndex,
  };
  const quickCheckouts = {
    deadline: deadlines.checkout,
    silentAfter: deadlines.silence,
    cancels: false,
  };
  const reads = yield* makePool(quickSettings, { name: "reads", size: readers, ...quickCheckouts });
  const writes = yield* makePool(
    { ...quickSettings, lock_timeout: toSetting(deadlines.writeLock) },
    { name: "writes", size: writers, ...quickCheckouts, slots: makeRoundRobin(writers) },
  );
  const bulk = yield* makePool(
    // With less `work_mem`, the bitmap of a search for a common word among ten million chats would be lossy, and
    // PostgreSQL would have to recheck whole pages.
    {
      statement_timeout: toSetting(deadlines.bulk),
      max_parallel_workers_per_gather: "0",
      work_mem: "32MB",
      ...customPlans,
    },
    {
      name: "bulk",
      size: bulkReaders,
      deadline: deadlines.bulk,
      silentAfter: Infinity,
      cancels: true,
      slots: makeRoundRobin(bulkReaders),
    },
  );
  const connectWith = (settings: Readonly<Record<string, string>>) =>
    tls.withFallback(PgConnection.make(configOf(options, 1, settings)));
  const openSession = (settings: Readonly<Record<string, string>>) =>
    Effect.map(
      connectWith({ ...noTimeouts, ...customPlans, ...byIndex, ...settings }),
      (connection) => makeDedicatedSession(connection, database),
    );

  const readSession = makeSession(reads, database);
  const connect = connectWith(noTimeouts);
  const { guardedPool, ...writeState } = yield* makeWriteState(connect, readSession, writes, state);
  const slots = isPooler === true ? Effect.succeed([]) : slotWarnings(readSession, size);
  return {
    ...writeState,
    examine: (options) =>
      Effect.zipWith(slots, writeState.examine(options), (a, b) => [...a, ...b]),
    reads: readSession,
    writes: makeSession(guardedPool, database),
    bulk: makeSession(bulk, database),
    erasureSession: openSession({ lock_timeout: toSetting(deadlines.erasureLock), ...idle }),
    exportSession: openSession({}),
  } satisfies PgPools;
});

/** A process that vanishes in a transaction must not keep its locks: creations wait for the locks of an erasure. */
const idle = { idle_in_transaction_session_timeout: toSetting(deadlines.idleTransaction) };
/** Plans that use indexes stay good as the tables grow. */
const byIndex = { enable_seqscan: "off", enable_bitmapscan: "off" };
/** A plan for the average chatbot does not suit a large one. */
const customPlans = { plan_cache_mode: "force_custom_plan" };
