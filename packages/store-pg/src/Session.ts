/**
 * Statements, each with the chatbot whose rows it is about.
 */
import type * as PgConnection from "@effect/sql-pg/PgConnection";
import type { Effect, Stream } from "effect";
import { SqlClient, type SqlConnection as Connection, type SqlError } from "effect/sql";
import { controls } from "./Controls.ts";

/**
 * Whose rows a statement is about: a chatbot's; those that the key with an id leads to; or, for
 * operators, what belongs to no chatbot alone, which chats and entries never do.
 */
export type Subject = number | { readonly key: string } | "operator";

export interface Session {
  /** One statement; inside a transaction of the same session it is part of that. */
  readonly query: <Row extends object>(
    subject: Subject,
    text: string,
    values?: ReadonlyArray<unknown>,
  ) => Effect.Effect<ReadonlyArray<Row>, SqlError.SqlError>;
  /** All of the effect's statements or none; all of them are about the one subject. */
  readonly transaction: <A, E, R>(
    subject: Subject,
    effect: Effect.Effect<A, E, R>,
  ) => Effect.Effect<A, E | SqlError.SqlError, R>;
  /** The rows of one statement as they come. */
  readonly stream: <Row extends object>(
    subject: Subject,
    text: string,
    values: ReadonlyArray<unknown>,
  ) => Stream.Stream<Row, SqlError.SqlError>;
  /** A statement in no transaction, and about nobody's rows: VACUUM, REINDEX, NOTIFY. */
  readonly command: (
    text: string,
    values?: ReadonlyArray<unknown>,
  ) => Effect.Effect<void, SqlError.SqlError>;
}

/** The statements as they are; their conditions alone keep chatbots apart. */
export const plainSession = (
  sql: SqlClient.SqlClient,
  { isPatient = false }: { readonly isPatient?: boolean } = {},
): Session => {
  const transaction = SqlClient.makeWithTransaction({
    transactionService: sql.transactionService,
    spanAttributes: [["db.system.name", "postgresql"]],
    acquireConnection: (restore) => restore(sql.reserve),
    ...controls<Connection.Connection>(
      (connection, text) =>
        connection.executeRaw(text, []) as Effect.Effect<PgConnection.Result, SqlError.SqlError>,
      isPatient,
    ),
  });
  return {
    query: <Row extends object>(_: Subject, text: string, values?: ReadonlyArray<unknown>) =>
      sql.unsafe<Row>(text, values),
    transaction: (_, effect) => transaction(effect),
    stream: <Row extends object>(_: Subject, text: string, values: ReadonlyArray<unknown>) =>
      sql.unsafe<Row>(text, values).stream,
    command: (text, values) => sql.unsafe(text, values),
  };
};
