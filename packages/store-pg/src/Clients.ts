/**
 * The clients of one database. Statements that share a pipelined connection queue behind one another, so
 * what may wait for a lock, or must read much, has connections of its own.
 */
import * as PgClient from "@effect/sql-pg/PgClient";
import { Effect, type Redacted } from "effect";
import type { SqlClient } from "effect/sql";
import { passConnections } from "./Passes.ts";
import { sessionOf, type Session } from "./Session.ts";

export interface Clients {
  /**
   * Pipelined: for reads that are quick and wait for nobody. Each has one good plan, whatever its
   * parameters; to plan it anew would take longer than to run it.
   */
  readonly reads: Session;
  /** For what takes locks; gives up on one that is held for long. */
  readonly writes: Session;
  /** For lists that read much; see `Passes.ts`. */
  readonly passes: Session;
  /** For erasures, exports and imports: nothing ends them. */
  readonly patient: Session;
  /** The same connections, for migrations. */
  readonly migrator: SqlClient.SqlClient;
  readonly listener: PgClient.PgClient;
}

export interface ClientOptions {
  readonly url: Redacted.Redacted;
  readonly schema: string;
  /** Connections for reads, and as many for writes. */
  readonly maxConnections: number;
}

/** Nothing is connected before the first statement. */
export const makeClients = Effect.fnUntraced(function* ({
  maxConnections,
  schema,
  url,
}: ClientOptions) {
  const client = (
    options: Pick<PgClient.PgPoolConfig, "maxConnections" | "multiplex">,
    settings: Readonly<Record<string, string>>,
  ) =>
    PgClient.make({
      ...options,
      url,
      applicationName: "parley",
      connectTimeout: "5 seconds",
      keepAlive: "10 seconds",
      startupParameters: {
        search_path: `"${schema.replaceAll('"', '""')}"`,
        ...settings,
      },
    });
  // A client that vanished in the middle of a transaction must not keep its locks.
  const idle = { idle_in_transaction_session_timeout: "30s" };
  const reads = yield* client(
    { maxConnections, multiplex: true },
    {
      statement_timeout: "30s",
      plan_cache_mode: "force_generic_plan",
      // A plan that was made when the tables were small must be right when they are large.
      enable_seqscan: "off",
      enable_bitmapscan: "off",
      ...idle,
    },
  );
  const writes = yield* client(
    { maxConnections },
    // A process that stands still in the middle of a transaction must not outlast a turn's lease.
    { statement_timeout: "30s", lock_timeout: "2s", idle_in_transaction_session_timeout: "5s" },
  );
  const passes = yield* client(
    { maxConnections: passConnections },
    // What a search finds decides how it is best done.
    { statement_timeout: "10s", plan_cache_mode: "force_custom_plan", ...idle },
  );
  const migrator = yield* client({ maxConnections: 2 }, { statement_timeout: "0" });
  const clients: Clients = {
    reads: sessionOf(reads),
    writes: sessionOf(writes),
    passes: sessionOf(passes),
    patient: sessionOf(migrator),
    migrator,
    listener: yield* client({ maxConnections: 1 }, {}),
  };
  return clients;
});
