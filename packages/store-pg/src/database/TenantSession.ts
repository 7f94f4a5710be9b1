/**
 * Sends statements, each with the tenant whose rows it is about. With row security each runs in a transaction that
 * names the tenant to the policies, so that a statement without its condition still finds no other chatbot's row.
 */
import type { PgConnection, Result } from "@effect/sql-pg/PgConnection";
import { inSpan } from "@parley/core/ports";
import { Context, Effect, Exit, Option, Stream } from "effect";
import { SqlError } from "effect/sql";
import type { Tenant, TenantPool } from "./Checkout.ts";
import { inTime } from "./Deadlines.ts";

/** SQL with its parameters. */
export interface Statement {
  readonly text: string;
  readonly values: ReadonlyArray<unknown>;
}

export interface Session {
  /** Runs one statement, as part of the session's open transaction if there is one. */
  readonly query: <Row extends object>(
    tenant: Tenant,
    text: string,
    values?: ReadonlyArray<unknown>,
  ) => Effect.Effect<ReadonlyArray<Row>, SqlError.SqlError>;
  /**
   * Commits all of the statements, or none. A connection that pipelines sends them together with their COMMIT, so that
   * no lock of theirs waits for this process. Returns the rows of each.
   */
  readonly batch: (
    tenant: Tenant,
    statements: ReadonlyArray<Statement>,
  ) => Effect.Effect<ReadonlyArray<ReadonlyArray<any>>, SqlError.SqlError>;
  /**
   * Commits all of the effect's statements, or none. All are of one tenant. Transactions do not nest. The statements
   * that `last` makes of the result are sent together with the COMMIT, too.
   */
  readonly transaction: <A, E, R>(
    tenant: Tenant,
    effect: Effect.Effect<A, E, R>,
    last?: (result: A) => ReadonlyArray<Statement>,
  ) => Effect.Effect<A, E | SqlError.SqlError, R>;
}

/** A session with a connection of its own. */
export interface DedicatedSession extends Session {
  /** The rows of one statement, as they arrive. */
  readonly stream: <Row extends object>(
    tenant: Tenant,
    text: string,
    values: ReadonlyArray<unknown>,
  ) => Stream.Stream<Row, SqlError.SqlError>;
}

interface SessionOptions {
  readonly rowSecurity: boolean;
  /** The database's name, for spans. */
  readonly database: string;
}

let sessions = 0;

/**
 * A session over lent connections. `pipelined` saves the round trips of a transaction of known statements, which then
 * cannot be canceled.
 */
export const makeTenantSession = (
  { use }: TenantPool,
  { database, pipelined = false, rowSecurity }: SessionOptions & { readonly pipelined?: boolean },
): Session => {
  /** The text of a statement is constant; what users wrote is in its values. */
  const spanOf =
    (text: string) =>
    <A, E>(executed: Effect.Effect<A, E>): Effect.Effect<A, E> =>
      inSpan(
        executed,
        "sql.execute",
        { "db.system.name": "postgresql", "db.namespace": database, "db.query.text": text },
        "client",
      );

  /** The connection of the open transaction. */
  const Open = Context.Service<PgConnection>(`@parley/store-pg/TenantSession/${++sessions}`);

  const transaction: Session["transaction"] = (tenant, effect, last = () => []) =>
    use(tenant, (lent) =>
      Effect.uninterruptibleMask((restore) =>
        Effect.gen(function* () {
          const exit = yield* Effect.scoped(
            Effect.gen(function* () {
              // Statements on a pinned connection can be canceled, and are not pipelined.
              const connection = yield* restore(lent.pin);
              yield* begin(connection, tenant, rowSecurity);
              const exit = yield* effect.pipe(
                Effect.provideService(Open, connection),
                restore,
                Effect.exit,
              );
              if (Exit.isFailure(exit)) yield* Effect.ignore(inTime(connection.query("ROLLBACK")));
              return exit;
            }),
          );
          const result = yield* exit;
          yield* sendTogether([...run(lent, last(result)), commit(lent)]);
          return result;
        }),
      ),
    ) as any;

  const send = (
    tenant: Tenant,
    statements: ReadonlyArray<Statement>,
  ): Effect.Effect<ReadonlyArray<Result>, SqlError.SqlError> => {
    if (!pipelined) {
      return transaction(
        tenant,
        Effect.flatMap(Open, (connection) => Effect.all(run(connection, statements))),
      ) as any;
    }
    // A statement that fails turns the COMMIT after it into a ROLLBACK.
    return use(tenant, (connection) => {
      const begun = opening(connection, tenant, rowSecurity);
      return Effect.map(
        sendTogether([...begun, ...run(connection, statements), commit(connection)]),
        (results) => results.slice(begun.length, -1),
      );
    });
  };

  const sendOne = (tenant: Tenant, text: string, values: ReadonlyArray<unknown>) =>
    rowSecurity && tenant !== "operator"
      ? Effect.map(send(tenant, [{ text, values }]), ([result]) => result!)
      : use(tenant, (connection) => connection.query(text, values));

  return {
    query: (tenant, text, values = []) =>
      Effect.serviceOption(Open).pipe(
        Effect.flatMap((open) =>
          Option.isSome(open) ? open.value.query(text, values) : sendOne(tenant, text, values),
        ),
        Effect.map(({ rows }) => rows as ReadonlyArray<any>),
        spanOf(text),
      ),
    batch: (tenant, statements) =>
      Effect.map(send(tenant, statements), (results) => results.map(({ rows }) => rows)).pipe(
        spanOf(statements.map(({ text }) => text).join(";")),
      ),
    transaction,
  };
};

export const makeDedicatedSession = (
  connection: PgConnection,
  options: SessionOptions,
): DedicatedSession => ({
  ...makeTenantSession({ use: (_, work) => work(connection) }, options),
  // The transaction ends with the connection.
  stream: (tenant, text, values) =>
    Stream.unwrap(
      Effect.as(
        begin(connection, tenant, options.rowSecurity),
        connection.stream(text, values) as Stream.Stream<any, SqlError.SqlError>,
      ),
    ),
});

const run = (connection: PgConnection, statements: ReadonlyArray<Statement>) =>
  statements.map(({ text, values }) => connection.query(text, values));

const opening = (connection: PgConnection, tenant: Tenant, rowSecurity: boolean) => {
  const begun = connection.query("BEGIN");
  return rowSecurity && tenant !== "operator"
    ? [begun, connection.query("select set_config('parley.chatbot', $1, true)", [String(tenant)])]
    : [begun];
};

const begin = (...of: Parameters<typeof opening>) => inTime(sendTogether(opening(...of)));

/** PostgreSQL answers the COMMIT of a transaction in which a statement failed with ROLLBACK. */
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

/** Pipelines statements in their order. Returns all results, or fails as the first that failed. */
const sendTogether = (statements: ReadonlyArray<Effect.Effect<Result, SqlError.SqlError>>) =>
  Effect.forEach(statements, Effect.exit, { concurrency: "unbounded" }).pipe(
    Effect.flatMap((exits) => Effect.all(exits)),
  );
