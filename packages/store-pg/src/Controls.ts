/**
 * The statements that begin and end transactions.
 */
import type * as PgConnection from "@effect/sql-pg/PgConnection";
import { Effect } from "effect";
import { SqlError } from "effect/sql";
import { answered } from "./Storage.ts";

/**
 * What `SqlClient.makeWithTransaction` needs. No interruption reaches these statements, so that each is given up
 * on by itself; only a commit may take as long as it needs where one is patient.
 */
export const controls = <C>(
  run: (connection: C, text: string) => Effect.Effect<PgConnection.Result, SqlError.SqlError>,
  isPatient: boolean,
) => {
  const control = (connection: C, text: string) => answered(run(connection, text));
  return {
    begin: (connection: C) => control(connection, "BEGIN"),
    savepoint: (connection: C, id: number) => control(connection, `SAVEPOINT parley_${id}`),
    releaseSavepoint: (connection: C, id: number) =>
      control(connection, `RELEASE SAVEPOINT parley_${id}`),
    commit: (connection: C) =>
      committed(isPatient ? run(connection, "COMMIT") : control(connection, "COMMIT")),
    rollback: (connection: C) => control(connection, "ROLLBACK"),
    rollbackSavepoint: (connection: C, id: number) =>
      control(connection, `ROLLBACK TO SAVEPOINT parley_${id}`),
  };
};

/** PostgreSQL answers the COMMIT of a transaction in which something failed with ROLLBACK. */
export const committed = (commit: Effect.Effect<PgConnection.Result, SqlError.SqlError>) =>
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
