/**
 * Statements, each with the tenant whose rows it is about. With row security each is sent in a transaction that tells
 * the policies the same, so that a statement that forgets its condition still gets no other chatbot's row. This is the
 * only file that knows of it.
 */
import type { PgConnection, Result } from "@effect/sql-pg/PgConnection";
import { Context, Effect, Exit, Option, Stream } from "effect";
import { SqlError } from "effect/sql";
import { inTime, type Lending, type Tenant } from "./Lending.ts";

export type { Tenant } from "./Lending.ts";

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
}

/** A session that has a connection to itself. */
export interface TransferSession extends Session {
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
   * saves three round trips. It cannot be cancelled then.
   */
  readonly inOneGo?: boolean;
  /** Settings of each of its transactions, and so of each statement. */
  readonly settings?: Readonly<Record<string, string>>;
}

let sessions = 0;

const anotherTenant = Effect.die(
  new Error("a statement is about another tenant than the transaction that it is part of"),
);

export const makeTenantSession = (
  { use }: Lending,
  { inOneGo = false, rowSecurity, settings = {} }: SessionOptions,
): Session => {
  const Open = Context.Service<{ readonly connection: PgConnection; readonly tenant: Tenant }>(
    `@parley/store-pg/TenantSession/${++sessions}`,
  );
  const settingsOf = makeSettingsOf(rowSecurity, settings);

  const transaction: Session["transaction"] = (tenant, effect) =>
    use(tenant, (lent) =>
      Effect.uninterruptibleMask((restore) =>
        Effect.scoped(
          Effect.gen(function* () {
            const connection = yield* restore(lent.pin);
            yield* begin(connection, settingsOf(tenant));
            const exit = yield* effect.pipe(
              Effect.provideService(Open, { connection, tenant }),
              restore,
              Effect.exit,
            );
            yield* Exit.isSuccess(exit)
              ? committed(connection.query("COMMIT"))
              : Effect.ignore(inTime(connection.query("ROLLBACK")));
            return yield* exit;
          }),
        ),
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
        const told = settingsOf(tenant);
        if (told.length === 0) return use(tenant, (connection) => connection.query(text, values));
        if (inOneGo) return use(tenant, (connection) => whole(connection, told, text, values));
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

  return { query, transaction };
};

export const makeTransferSession = (
  connection: PgConnection,
  options: SessionOptions,
): TransferSession => ({
  ...makeTenantSession({ use: (_, work) => work(connection) }, options),
  stream: (tenant, text, values) => {
    const told = makeSettingsOf(options.rowSecurity, options.settings)(tenant);
    const rows = connection.stream(text, values) as Stream.Stream<any, SqlError.SqlError>;
    return told.length === 0 ? rows : Stream.unwrap(Effect.as(begin(connection, told), rows));
  },
});

type Settings = ReadonlyArray<readonly [name: string, value: string]>;

const makeSettingsOf = (rowSecurity: boolean, settings: SessionOptions["settings"] = {}) => {
  const always = Object.entries(settings);
  return (tenant: Tenant): Settings =>
    rowSecurity && tenant !== "operator" ? [...always, ["parley.chatbot", String(tenant)]] : always;
};

const begin = (connection: PgConnection, settings: Settings) =>
  inTime(sentTogether([connection.query("BEGIN"), ...tell(connection, settings)]));

const tell = (connection: PgConnection, settings: Settings) => {
  if (settings.length === 0) return [];
  const calls = settings.map((_, n) => `set_config($${2 * n + 1}, $${2 * n + 2}, true)`);
  return [connection.query(`select ${calls.join(", ")}`, settings.flat())];
};

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
  );

/** A statement that fails turns the COMMIT after it into a ROLLBACK. */
const whole = (
  connection: PgConnection,
  settings: Settings,
  text: string,
  values: ReadonlyArray<unknown> | undefined,
) =>
  sentTogether([
    connection.query("BEGIN"),
    ...tell(connection, settings),
    connection.query(text, values),
    committed(connection.query("COMMIT")),
  ]).pipe(Effect.map((results) => results.at(-2)!));
