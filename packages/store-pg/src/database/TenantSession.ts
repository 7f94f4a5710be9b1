/**
 * Sends statements, each with the tenant whose rows it is about. With row security each runs in a transaction that names
 * the tenant to the policies, so that a statement without its condition still finds no other chatbot's row.
 */
import type { PgConnection, Result } from "@effect/sql-pg/PgConnection";
import { inSpan } from "@parley/core";
import { Context, Effect, Exit, Option, Stream } from "effect";
import { SqlError } from "effect/sql";
import { inTime, type Lending, type Tenant } from "./Lending.ts";

export interface Session {
  /** Runs one statement, as part of the session's open transaction if there is one. */
  readonly query: <Row extends object>(
    tenant: Tenant,
    text: string,
    values?: ReadonlyArray<unknown>,
  ) => Effect.Effect<ReadonlyArray<Row>, SqlError.SqlError>;
  /** Commits all of the effect's statements, or none. All are of one tenant. Transactions do not nest. */
  readonly transaction: <A, E, R>(
    tenant: Tenant,
    effect: Effect.Effect<A, E, R>,
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
  /**
   * Whether row security's transaction is pipelined with its statement, which saves three round trips. Such a statement
   * cannot be canceled.
   */
  readonly pipelined?: boolean;
}

let sessions = 0;

const wrongTenant = Effect.die(new Error("the transaction is of another tenant"));

export const makeTenantSession = (
  { use }: Lending,
  { pipelined = false, rowSecurity }: SessionOptions,
): Session => {
  const Open = Context.Service<{ readonly connection: PgConnection; readonly tenant: Tenant }>(
    `@parley/store-pg/TenantSession/${++sessions}`,
  );

  const transaction: Session["transaction"] = (tenant, effect) =>
    use(tenant, (lent) =>
      Effect.uninterruptibleMask((restore) =>
        Effect.scoped(
          Effect.gen(function* () {
            const connection = yield* restore(lent.pin);
            yield* begin(connection, tenant, rowSecurity);
            const exit = yield* effect.pipe(
              Effect.provideService(Open, { connection, tenant }),
              restore,
              Effect.exit,
            );
            yield* Exit.isSuccess(exit)
              ? commit(connection)
              : Effect.ignore(inTime(connection.query("ROLLBACK")));
            return yield* exit;
          }),
        ),
      ),
    ) as any;

  const send = (
    tenant: Tenant,
    text: string,
    values: ReadonlyArray<unknown> | undefined,
  ): Effect.Effect<Result, SqlError.SqlError> => {
    const isBound = rowSecurity && tenant !== "operator";
    const run = (connection: PgConnection) => connection.query(text, values);
    if (!isBound) return use(tenant, run);
    if (!pipelined)
      return transaction(
        tenant,
        Effect.flatMap(Open, ({ connection }) => run(connection)),
      ) as any;
    // A statement that fails turns the COMMIT after it into a ROLLBACK.
    return use(tenant, (connection) =>
      Effect.map(
        sendTogether([
          ...opening(connection, tenant, rowSecurity),
          run(connection),
          commit(connection),
        ]),
        (results) => results.at(-2)!,
      ),
    );
  };

  const query: Session["query"] = (tenant, text, values) =>
    Effect.serviceOption(Open).pipe(
      Effect.flatMap((open) => {
        if (Option.isNone(open)) return send(tenant, text, values);
        const { connection, tenant: opened } = open.value;
        return opened === tenant ? connection.query(text, values) : wrongTenant;
      }),
      Effect.map(({ rows }) => rows as ReadonlyArray<any>),
      // The text is constant; what users wrote is in the values.
      (executed) =>
        inSpan(
          executed,
          "sql.execute",
          { "db.system.name": "postgresql", "db.query.text": text },
          "client",
        ),
    );

  return { query, transaction };
};

export const makeDedicatedSession = (
  connection: PgConnection,
  rowSecurity: boolean,
): DedicatedSession => ({
  ...makeTenantSession({ use: (_, work) => work(connection) }, { rowSecurity }),
  // The transaction ends with the connection.
  stream: (tenant, text, values) =>
    Stream.unwrap(
      Effect.as(
        begin(connection, tenant, rowSecurity),
        connection.stream(text, values) as Stream.Stream<any, SqlError.SqlError>,
      ),
    ),
});

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
