/**
 * Sends statements to the connections of a pool, singly or in transactions.
 */
import type { PgConnection, Result } from "@effect/sql-pg/PgConnection";
import { inSpan, type Verb } from "@parley/core/ports";
import { Context, Effect, Stream } from "effect";
import { SqlError } from "effect/sql";
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
   * Commits all of the statements, or none. The pool must not cancel work, because that would leave the transaction
   * open. Returns the rows of the last statement.
   */
  readonly queryAll: <Row extends object>(
    tenant: Tenant,
    statements: ReadonlyArray<Statement>,
  ) => Effect.Effect<ReadonlyArray<Row>, SqlError.SqlError>;
  /**
   * Commits all of the effect's statements, or none. All of them must concern the same tenant. Transactions do not
   * nest. The statements that `last` builds from the result are part of the transaction. A pipelining connection sends
   * them together with the COMMIT.
   */
  readonly transaction: <A, E, R>(
    tenant: Tenant,
    effect: Effect.Effect<A, E, R>,
    last?: (result: A) => ReadonlyArray<Statement>,
  ) => Effect.Effect<A, E | SqlError.SqlError, R>;
}

export interface DedicatedSession extends Session {
  readonly stream: <Row extends object>(
    text: string,
    values: ReadonlyArray<unknown>,
  ) => Stream.Stream<Row, SqlError.SqlError>;
}

/** Verbs that fail with the driver's errors, which must reach the transaction: it retries after some of them. */
export type SqlVerbs<Verbs> = {
  readonly [Name in keyof Verbs]: Verbs[Name] extends (
    ...values: infer Values
  ) => Verb<infer A, infer E>
    ? (...values: Values) => Effect.Effect<A, E | SqlError.SqlError>
    : Verbs[Name];
};

/** The open transaction. Only statements for the same pool run on its connection. */
const OpenTransaction = Context.Reference<{
  readonly pool: TenantPool;
  readonly connection: PgConnection;
} | null>("@parley/store-pg/OpenTransaction", { defaultValue: () => null });

/** Creates a session that uses the connections of a pool. */
export const makeSession = (pool: TenantPool, database: string): Session => {
  /** Runs a statement in a span that has its constant text, but not its values, which users may have written. */
  const traced = <A, E>(statement: Effect.Effect<A, E>, text: string) =>
    inSpan(
      statement,
      "sql.execute",
      { "db.system.name": "postgresql", "db.namespace": database, "db.query.text": text },
      "client",
    );

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
    return traced(statement, text);
  };

  const queryAll: Session["queryAll"] = <Row extends object>(
    tenant: Tenant,
    statements: ReadonlyArray<Statement>,
  ) => {
    // If a statement fails, PostgreSQL treats the COMMIT after it as a ROLLBACK.
    const transaction = pool.use(tenant, (connection) =>
      sendTogether([
        connection.query("BEGIN"),
        ...queriesOf(connection, statements),
        commit(connection),
      ]),
    );
    return traced(
      Effect.map(transaction, (results) => rowsOf<Row>(results.at(-2)!)),
      statements.map(({ text }) => text).join(";"),
    );
  };

  const transaction: Session["transaction"] = (tenant, effect, last = () => []) =>
    pool.use(tenant, (connection) =>
      Effect.uninterruptibleMask((restore) =>
        Effect.gen(function* () {
          const result = yield* Effect.scoped(
            Effect.gen(function* () {
              // Statements on a pinned connection can be cancelled, and are not pipelined.
              const pinnedConnection = yield* restore(connection.pin);
              yield* inTime(pinnedConnection.query("BEGIN"));
              return yield* effect.pipe(
                Effect.provideService(OpenTransaction, { pool, connection: pinnedConnection }),
                restore,
                Effect.onError(() => Effect.ignore(inTime(pinnedConnection.query("ROLLBACK")))),
              );
            }),
          );
          // The pin has ended: these statements use the same connection, which sends them together if it pipelines.
          yield* sendTogether([...queriesOf(connection, last(result)), commit(connection)]);
          return result;
        }),
      ),
    );

  return { query, queryAll, transaction };
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

const queriesOf = (connection: PgConnection, statements: ReadonlyArray<Statement>) =>
  statements.map(({ text, values }) => connection.query(text, values));

/** Commits, but fails if a statement of the transaction failed: PostgreSQL then answers COMMIT with `ROLLBACK`. */
const commit = (connection: PgConnection) =>
  Effect.filterOrFail(
    connection.query("COMMIT"),
    ({ command }) => command === "COMMIT",
    () =>
      new SqlError.SqlError({
        reason: new SqlError.UnknownError({
          cause: new Error("the transaction was rolled back"),
          operation: "commit",
        }),
      }),
  );

/**
 * Gives the connection all statements at once, in order. A pipelining connection sends them together; any other sends
 * each statement once it has the result of the previous one. Returns all results, or fails with the first error.
 */
const sendTogether = (statements: ReadonlyArray<Effect.Effect<Result, SqlError.SqlError>>) =>
  Effect.forEach(statements, Effect.exit, { concurrency: "unbounded" }).pipe(
    Effect.flatMap((exits) => Effect.all(exits)),
  );
