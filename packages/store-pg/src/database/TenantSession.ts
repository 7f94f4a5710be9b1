/**
 * Statements, each with the tenant whose rows it is about. With row security each is sent in a transaction that tells
 * the policies the same, so that a statement that forgets its condition still gets no other chatbot's row. This is the
 * only file that knows of it.
 */
import type { PgConnection, Result } from "@effect/sql-pg/PgConnection";
import * as PgPool from "@effect/sql-pg/PgPool";
import { Context, Effect, Exit, Option, Stream, type Scope } from "effect";
import { SqlError } from "effect/sql";
import { answered } from "../Storage.ts";

/** A chatbot; or, for what belongs to no chatbot alone, which chats and entries never do, the operator. */
export type Tenant = number | "operator";

export interface Session {
  /** One statement; inside a transaction of the same session it is part of that. */
  readonly query: <Row extends object>(
    tenant: Tenant,
    text: string,
    values?: ReadonlyArray<unknown>,
  ) => Effect.Effect<ReadonlyArray<Row>, SqlError.SqlError>;
  /** All of the effect's statements or none, all of one tenant. There are none within another. */
  readonly transaction: <A, E, R>(
    tenant: Tenant,
    effect: Effect.Effect<A, E, R>,
  ) => Effect.Effect<A, E | SqlError.SqlError, R>;
  /** The rows of one statement as they come. */
  readonly stream: <Row extends object>(
    tenant: Tenant,
    text: string,
    values: ReadonlyArray<unknown>,
  ) => Stream.Stream<Row, SqlError.SqlError>;
}

interface SessionOptions {
  readonly rowSecurity: boolean;
  /**
   * Whether a statement is over so soon that it may be sent in one go with the transaction that row security needs, which
   * saves three round trips. An interruption then waits for its end; otherwise it cancels the statement.
   */
  readonly inOneGo?: boolean;
  /** Whether a COMMIT may take as long as it needs. */
  readonly isPatient?: boolean;
}

let sessions = 0;

const anotherTenant = Effect.die(
  new Error("a statement is about another tenant than the transaction that it is part of"),
);

export const makeTenantSession = Effect.fnUntraced(function* (
  config: PgPool.Config,
  { inOneGo = false, isPatient = false, rowSecurity }: SessionOptions,
): Effect.fn.Return<Session, SqlError.SqlError, Scope.Scope> {
  const pool = yield* PgPool.make({
    ...config,
    // What belongs together is pipelined on a connection that is lent to one fiber at a time.
    ...(rowSecurity && { multiplex: true, multiplexConcurrency: 1 }),
  });
  const Open = Context.Service<{ readonly connection: PgConnection; readonly tenant: Tenant }>(
    `@parley/store-pg/TenantSession/${++sessions}`,
  );
  const isBound = (tenant: Tenant) => rowSecurity && tenant !== "operator";

  const begin = (connection: PgConnection, tenant: Tenant) =>
    answered(
      sentTogether([
        connection.query("BEGIN"),
        ...(isBound(tenant) ? [bind(connection, tenant)] : []),
      ]),
    );

  const commit = (connection: PgConnection) => {
    const sent = committed(connection.query("COMMIT"));
    return isPatient ? sent : answered(sent);
  };

  const transaction: Session["transaction"] = (tenant, effect) =>
    Effect.uninterruptibleMask((restore) =>
      Effect.scoped(
        Effect.gen(function* () {
          const connection = yield* restore(pool.reserve);
          // A connection in an unknown state is not lent again.
          const ended = <A>(control: Effect.Effect<A, SqlError.SqlError>) =>
            Effect.tapError(control, () => pool.invalidate(connection));
          yield* ended(begin(connection, tenant));
          const exit = yield* effect.pipe(
            Effect.provideService(Open, { connection, tenant }),
            restore,
            Effect.exit,
          );
          yield* Exit.isSuccess(exit)
            ? ended(commit(connection))
            : Effect.ignore(ended(answered(connection.query("ROLLBACK"))));
          return yield* exit;
        }),
      ),
    ) as any;

  const query: Session["query"] = (tenant, text, values) =>
    Effect.serviceOption(Open).pipe(
      Effect.flatMap((open) => {
        if (Option.isSome(open)) {
          return open.value.tenant === tenant
            ? open.value.connection.query(text, values)
            : anotherTenant;
        }
        if (!isBound(tenant)) return pool.use((connection) => connection.query(text, values));
        if (inOneGo) return pool.use((connection) => whole(connection, tenant, text, values));
        return transaction(
          tenant,
          Effect.flatMap(Open, ({ connection }) => connection.query(text, values)),
        ) as Effect.Effect<Result, SqlError.SqlError>;
      }),
      Effect.map(({ rows }) => rows as ReadonlyArray<any>),
      Effect.withSpan("sql.execute", {
        kind: "client",
        attributes: { "db.system.name": "postgresql", "db.query.text": text },
      }),
    );

  return {
    query,
    transaction,
    stream: (tenant, text, values) =>
      Stream.unwrap(
        Effect.gen(function* () {
          const connection = yield* pool.reserve;
          if (isBound(tenant)) {
            // It only reads, so that there is nothing to commit.
            yield* Effect.acquireRelease(begin(connection, tenant), () =>
              Effect.ignore(answered(connection.query("ROLLBACK"))),
            );
          }
          return connection.stream(text, values) as Stream.Stream<any, SqlError.SqlError>;
        }),
      ),
  };
});

const bind = (connection: PgConnection, tenant: Tenant) =>
  connection.query("select set_config('parley.chatbot', $1, true)", [String(tenant)]);

/** PostgreSQL answers the COMMIT of a transaction in which something failed with ROLLBACK. */
const committed = (commit: Effect.Effect<Result, SqlError.SqlError>) =>
  Effect.filterOrFail(
    commit,
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
 * Sends statements without waiting for the answers in between, in the order in which they begin; gives the answers, or why
 * the first one failed.
 */
const sentTogether = (statements: ReadonlyArray<Effect.Effect<Result, SqlError.SqlError>>) =>
  Effect.forEach(statements, Effect.exit, { concurrency: "unbounded" }).pipe(
    Effect.flatMap((exits) => Effect.all(exits)),
    Effect.uninterruptible,
  );

/**
 * A statement that fails turns the COMMIT after it into a ROLLBACK; were one of the four given up on by itself, the
 * transaction would stay open.
 */
const whole = (
  connection: PgConnection,
  tenant: Tenant,
  text: string,
  values: ReadonlyArray<unknown> | undefined,
) =>
  sentTogether([
    connection.query("BEGIN"),
    bind(connection, tenant),
    connection.query(text, values),
    committed(connection.query("COMMIT")),
  ]).pipe(
    answered,
    Effect.map((results) => results[2]!),
    Effect.uninterruptible,
  );
