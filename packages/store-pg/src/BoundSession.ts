/**
 * Statements that row-level security binds to their subject: each runs in a transaction that says whose
 * rows it is about. Without a subject a connection sees nothing, whatever ran on it before.
 */
import type { PgConnection } from "@effect/sql-pg/PgConnection";
import * as PgPool from "@effect/sql-pg/PgPool";
import { Context, Effect, Exit, Option, Stream, type Scope } from "effect";
import { SqlClient, type SqlError } from "effect/sql";
import { committed, controls } from "./Controls.ts";
import type { Session, Subject } from "./Session.ts";
import { answered } from "./Storage.ts";

/** A setting that the policies look at, and its value. */
type Setting = readonly [name: string, value: string];

const settingOf = (subject: Subject): Setting => {
  if (subject === "operator") return ["parley.operator", "on"];
  return typeof subject === "number"
    ? ["parley.chatbot", String(subject)]
    : ["parley.key", subject.key];
};

const bind = (connection: PgConnection, setting: Setting) =>
  connection.query("select set_config($1, $2, true)", setting);

/** A connection that a transaction holds, and what it is bound to once that is said. */
interface Held {
  readonly connection: PgConnection;
  setting: Setting | null;
}

const aboutAnother = Effect.die(
  new Error("a statement is about another subject than the transaction that it is part of"),
);

let sessions = 0;

interface Manner {
  /**
   * A single statement is sent with its transaction, which saves three round trips; whoever is interrupted meanwhile
   * then waits for its end. Otherwise an interruption cancels it.
   */
  readonly inOneGo: boolean;
  /** Whether a commit may take as long as it needs. */
  readonly isPatient: boolean;
}

export const makeBoundSession = (
  config: PgPool.Config,
  manner: Manner,
): Effect.Effect<Session, SqlError.SqlError, Scope.Scope> =>
  Effect.map(
    // Each connection is lent to one at a time; for that one it pipelines.
    PgPool.make({ ...config, multiplex: true, multiplexConcurrency: 1 }),
    (pool) => boundSession(pool, manner),
  );

const boundSession = (pool: PgPool.PgPool, { inOneGo, isPatient }: Manner): Session => {
  const transactions = Context.Service<readonly [held: Held, depth: number]>(
    `@parley/store-pg/BoundSession/${++sessions}`,
  );

  const inTransaction = SqlClient.makeWithTransaction({
    transactionService: transactions,
    spanAttributes: [["db.system.name", "postgresql"]],
    acquireConnection: (restore) =>
      Effect.map(restore(pool.reserve), (connection): Held => ({ connection, setting: null })),
    ...controls<Held>(({ connection }, text) => connection.query(text), isPatient),
  });

  /** Of the transaction that the fiber is in. */
  const current = Effect.map(
    Effect.serviceOption(transactions),
    Option.match({ onNone: () => null, onSome: ([held]) => held }),
  );

  const transaction: Session["transaction"] = (subject, effect) =>
    inTransaction(
      Effect.flatMap(current, (held) => {
        const setting = settingOf(subject);
        if (held!.setting !== null) return isSame(held!.setting, setting) ? effect : aboutAnother;
        held!.setting = setting;
        return Effect.andThen(bind(held!.connection, setting), effect);
      }),
    );

  const query: Session["query"] = <Row extends object>(
    subject: Subject,
    text: string,
    values?: ReadonlyArray<unknown>,
  ) =>
    Effect.flatMap(current, (held): Effect.Effect<ReadonlyArray<unknown>, SqlError.SqlError> => {
      if (held === null) {
        return inOneGo
          ? pool.use((connection) => wholeTransaction(connection, settingOf(subject), text, values))
          : transaction(subject, query<object>(subject, text, values));
      }
      return held.setting !== null && isSame(held.setting, settingOf(subject))
        ? Effect.map(held.connection.query(text, values), ({ rows }) => rows)
        : aboutAnother;
    }) as Effect.Effect<ReadonlyArray<Row>, SqlError.SqlError>;

  return {
    query,
    transaction,

    stream: <Row extends object>(subject: Subject, text: string, values: ReadonlyArray<unknown>) =>
      Stream.unwrap(
        Effect.gen(function* () {
          const connection = yield* pool.reserve;
          // It only reads, so that there is nothing to commit.
          yield* Effect.acquireRelease(answered(connection.query("BEGIN")), () =>
            Effect.ignore(answered(connection.query("ROLLBACK"))),
          );
          yield* bind(connection, settingOf(subject));
          return connection.stream(text, values) as Stream.Stream<unknown, SqlError.SqlError>;
        }),
      ) as Stream.Stream<Row, SqlError.SqlError>,

    command: (text, values) => pool.use((connection) => connection.query(text, values)),
  };
};

/**
 * The order in which these begin is that in which they are sent. A statement that fails turns the COMMIT
 * after it into a ROLLBACK; were one of the four given up on its own, the transaction would stay open.
 */
const wholeTransaction = (
  connection: PgConnection,
  setting: Setting,
  text: string,
  values: ReadonlyArray<unknown> | undefined,
) =>
  Effect.all(
    [
      Effect.exit(connection.query("BEGIN")),
      Effect.exit(bind(connection, setting)),
      Effect.exit(connection.query(text, values)),
      Effect.exit(committed(connection.query("COMMIT"))),
    ],
    { concurrency: "unbounded" },
  ).pipe(
    // The first failure tells why.
    Effect.flatMap((exits) => Exit.map(exits.find(Exit.isFailure) ?? exits[2], ({ rows }) => rows)),
    answered,
    Effect.uninterruptible,
  );

const isSame = ([name, value]: Setting, [otherName, otherValue]: Setting) =>
  name === otherName && value === otherValue;
