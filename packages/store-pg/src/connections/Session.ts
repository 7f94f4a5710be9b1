/**
 * Sends each statement on behalf of the tenant whose rows it concerns. With row security, the statement runs in a
 * transaction that names the tenant to the policies, so that even a statement without a condition on `chatbot_id`
 * cannot find another chatbot's rows.
 */
import type { PgConnection, Result } from "@effect/sql-pg/PgConnection";
import { inSpan } from "@parley/core/ports";
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
   * decides whose slot the statement takes and, with row security, which rows it sees. Passing `tenant` adds neither a
   * condition nor a parameter.
   */
  readonly query: <Row extends object>(
    tenant: Tenant,
    text: string,
    values?: ReadonlyArray<unknown>,
  ) => Effect.Effect<ReadonlyArray<Row>, SqlError.SqlError>;
  /**
   * Commits all of the statements, or none. With `sendsTogether`, a pipelining connection sends them together with
   * their COMMIT, so that no lock is held during a round trip. Returns the rows of the last statement.
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
    tenant: Tenant,
    text: string,
    values: ReadonlyArray<unknown>,
  ) => Stream.Stream<Row, SqlError.SqlError>;
}

interface SessionOptions {
  readonly rowSecurity: boolean;
  readonly database: string;
  /**
   * Whether the connection gets all statements of a batch at once; it pipelines them if it can. If this is `true`,
   * the pool must not cancel work, because that would leave the transaction open.
   */
  readonly sendsTogether?: boolean;
}

/** The open transaction. Only statements for the same pool run on its connection. */
const OpenTransaction = Context.Reference<{
  readonly pool: TenantPool;
  readonly connection: PgConnection;
} | null>("@parley/store-pg/OpenTransaction", { defaultValue: () => null });

/** Runs a statement in a span that has its constant text, but not its values, which users may have written. */
const spanOf =
  (database: string, text: string) =>
  <A, E>(statement: Effect.Effect<A, E>): Effect.Effect<A, E> =>
    inSpan(
      statement,
      "sql.execute",
      { "db.system.name": "postgresql", "db.namespace": database, "db.query.text": text },
      "client",
    );

/** Creates a session that uses the connections of a pool. */
export const makeTenantSession = (
  pool: TenantPool,
  { database, rowSecurity, sendsTogether = false }: SessionOptions,
): Session => {
  const transaction: Session["transaction"] = (tenant, effect, last = () => []) =>
    pool.use(tenant, (connection) =>
      Effect.uninterruptibleMask((restore) =>
        Effect.gen(function* () {
          const result = yield* Effect.scoped(
            Effect.gen(function* () {
              // Statements on a pinned connection can be cancelled, and are not pipelined.
              const pinnedConnection = yield* restore(connection.pin);
              yield* begin(pinnedConnection, tenant, rowSecurity);
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

  const send = (
    tenant: Tenant,
    statements: ReadonlyArray<Statement>,
  ): Effect.Effect<ReadonlyArray<Result>, SqlError.SqlError> => {
    if (!sendsTogether) {
      const statement = Effect.flatMap(OpenTransaction, (openTransaction) =>
        Effect.all(queriesOf(openTransaction!.connection, statements)),
      );
      return transaction(tenant, statement);
    }
    // If a statement fails, PostgreSQL treats the COMMIT after it as a ROLLBACK.
    return pool.use(tenant, (connection) => {
      const opening = openingOf(connection, tenant, rowSecurity);
      return Effect.map(
        sendTogether([...opening, ...queriesOf(connection, statements), commit(connection)]),
        (results) => results.slice(opening.length, -1),
      );
    });
  };

  const sendOne = (tenant: Tenant, text: string, values: ReadonlyArray<unknown>) =>
    rowSecurity && tenant !== "operator"
      ? Effect.map(send(tenant, [{ text, values }]), ([result]) => result!)
      : pool.use(tenant, (connection) => connection.query(text, values));

  const query: Session["query"] = <Row extends object>(
    tenant: Tenant,
    text: string,
    values: ReadonlyArray<unknown> = [],
  ) =>
    Effect.flatMap(OpenTransaction, (openTransaction) =>
      openTransaction?.pool === pool
        ? openTransaction.connection.query(text, values)
        : sendOne(tenant, text, values),
    ).pipe(Effect.map(rowsOf<Row>), spanOf(database, text));

  const queryAll: Session["queryAll"] = <Row extends object>(
    tenant: Tenant,
    statements: ReadonlyArray<Statement>,
  ) =>
    Effect.map(send(tenant, statements), (results) => rowsOf<Row>(results.at(-1)!)).pipe(
      spanOf(database, statements.map(({ text }) => text).join(";")),
    );

  return { query, queryAll, transaction };
};

export const makeDedicatedSession = (
  connection: PgConnection,
  options: SessionOptions,
): DedicatedSession => ({
  ...makeTenantSession({ use: (_, work) => work(connection) }, options),
  // There is no COMMIT: the transaction ends with the connection.
  stream: <Row extends object>(tenant: Tenant, text: string, values: ReadonlyArray<unknown>) =>
    Stream.unwrap(
      Effect.as(
        begin(connection, tenant, options.rowSecurity),
        Stream.map(connection.stream(text, values), (row: object) => row as Row),
      ),
    ),
});

/** Casts the rows of a result: the caller knows what its statement returns. */
const rowsOf = <Row extends object>({ rows }: Result) =>
  rows as ReadonlyArray<object> as ReadonlyArray<Row>;

const queriesOf = (connection: PgConnection, statements: ReadonlyArray<Statement>) =>
  statements.map(({ text, values }) => connection.query(text, values));

const openingOf = (connection: PgConnection, tenant: Tenant, rowSecurity: boolean) => {
  const beginStatement = connection.query("BEGIN");
  return rowSecurity && tenant !== "operator"
    ? [
        beginStatement,
        connection.query("select set_config('parley.chatbot', $1, true)", [String(tenant)]),
      ]
    : [beginStatement];
};

const begin = (...of: Parameters<typeof openingOf>) => inTime(sendTogether(openingOf(...of)));

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
