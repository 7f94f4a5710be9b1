/**
 * Sends statements to the connections of a pool, singly or in transactions.
 */
import type { PgConnection, Result } from "@effect/sql-pg/PgConnection";
import { inSpan } from "@parley/core/ports";
import { Context, Effect, Stream } from "effect";
import type { SqlError } from "effect/sql";
import type { Tenant, TenantPool } from "./Checkout.ts";
import { inTime } from "./Deadlines.ts";

export interface Statement {
  readonly text: string;
  readonly values: ReadonlyArray<unknown>;
}

export interface Session {
  /**
   * Runs one statement, as part of the session's open transaction if there is one. Outside a transaction, `tenant`
   * decides whose slot the statement takes. It adds no condition: the statement must name its chatbot itself.
   */
  readonly query: <Row extends object>(
    tenant: Tenant,
    text: string,
    values?: ReadonlyArray<unknown>,
  ) => Effect.Effect<ReadonlyArray<Row>, SqlError.SqlError>;
  /**
   * Commits all of the effect's statements, or none. Transactions do not nest.
   */
  readonly transaction: <A, E, R>(
    tenant: Tenant,
    effect: Effect.Effect<A, E, R>,
  ) => Effect.Effect<A, E | SqlError.SqlError, R>;
}

export interface DedicatedSession extends Session {
  readonly stream: <Row extends object>(
    text: string,
    values: ReadonlyArray<unknown>,
  ) => Stream.Stream<Row, SqlError.SqlError>;
}

/**
 * A session's `query` as verbs use it. Its type leaves out the driver's errors, which pass through the body to its
 * transaction: that retries after some, and maps the others.
 */
export type VerbQuery = <Row extends object>(
  ...statement: Parameters<Session["query"]>
) => Effect.Effect<ReadonlyArray<Row>>;

/** The open transaction. Only statements for the same pool run on its connection. */
const OpenTransaction = Context.Reference<{
  readonly pool: TenantPool;
  readonly connection: PgConnection;
} | null>("@parley/store-pg/OpenTransaction", { defaultValue: () => null });

/** Creates a session that uses the connections of a pool. */
export const makeSession = (pool: TenantPool, database: string): Session => {
  const query: Session["query"] = <Row extends object>(
    tenant: Tenant,
    text: string,
    values: ReadonlyArray<unknown> = [],
  ) => {
    const send = (connection: PgConnection) =>
      Effect.map(connection.query(text, values), rowsOf<Row>);
    const statement = Effect.flatMap(OpenTransaction, (openTransaction) =>
      openTransaction?.pool === pool ? send(openTransaction.connection) : pool.use(tenant, send),
    );
    // The span has the constant text, but not the values, which users may have written.
    return inSpan(
      statement,
      "sql.execute",
      { "db.system.name": "postgresql", "db.namespace": database, "db.query.text": text },
      "client",
    );
  };

  const transaction: Session["transaction"] = (tenant, effect) =>
    pool.use(tenant, (connection) =>
      Effect.uninterruptibleMask((restore) =>
        Effect.gen(function* () {
          // The end of the pin closes a connection whose statement is still running.
          const pinnedConnection = yield* restore(connection.pin);
          yield* inTime(pinnedConnection.query("BEGIN"));
          // A stream's statement is not prepared: in a transaction, a prepared one that the server has lost fails, too.
          const rollBack = inTime(Stream.runDrain(pinnedConnection.stream("ROLLBACK")));
          return yield* effect.pipe(
            Effect.provideService(OpenTransaction, { pool, connection: pinnedConnection }),
            restore,
            Effect.tap(() => pinnedConnection.query("COMMIT")),
            Effect.onError(() => Effect.ignore(rollBack)),
          );
        }).pipe(Effect.scoped),
      ),
    );

  return { query, transaction };
};

export const makeDedicatedSession = (
  connection: PgConnection,
  database: string,
): DedicatedSession => ({
  ...makeSession({ use: (_, work) => work(connection) }, database),
  stream: <Row extends object>(text: string, values: ReadonlyArray<unknown>) =>
    Stream.map(connection.stream(text, values), (row: object) => row as Row),
});

/** Casts the rows of a result: the caller knows what its statement returns. */
const rowsOf = <Row extends object>({ rows }: Result) =>
  rows as ReadonlyArray<object> as ReadonlyArray<Row>;
