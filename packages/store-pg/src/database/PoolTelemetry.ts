/**
 * The database as an operator sees it: the connections in use, the work that waits for one, and a log line when the
 * database is lost or can be used again.
 */
import type { PgConnection } from "@effect/sql-pg/PgConnection";
import { describeCause, registerGauge } from "@parley/core";
import { Cause, Effect, Exit, Option } from "effect";
import { SqlError } from "effect/sql";
import type { Lending } from "./Lending.ts";
import { codeOf, isStatementTimeout } from "./PgErrors.ts";

/** SQLSTATE: connection exceptions, and a server that stops or starts. */
const lostCodes = /^(08|57P0[1-3])/;

const isLoss = (error: unknown): boolean =>
  SqlError.isSqlError(error) &&
  (error.reason._tag === "ConnectionError" ||
    error.reason.operation === "connect" ||
    lostCodes.test(codeOf(error)) ||
    // Not PostgreSQL ended the wait, but this process.
    (isStatementTimeout(error) && codeOf(error) === ""));

export const makePoolTelemetry = Effect.map(Effect.context<never>(), (context) => {
  let isLost = false;
  /** Logs the loss of the database once, and its return. */
  const note = (exit: Exit.Exit<unknown, unknown>): Effect.Effect<void> => {
    if (Exit.isSuccess(exit)) {
      if (!isLost) return Effect.void;
      isLost = false;
      return Effect.logInfo("The database can be used again");
    }
    const error = Option.getOrNull(Cause.findErrorOption(exit.cause));
    if (isLost || !isLoss(error)) return Effect.void;
    isLost = true;
    const line = Effect.logError("The database was lost");
    return Effect.annotateLogs(line, "reason", describeCause(error));
  };

  /** Observes the loans of a pool; they are counted only when the metrics are read. */
  const observeLending = (pool: string, lending: Lending): Lending => {
    const loans = new Set<{ connection?: PgConnection }>();
    const lent = () => [...loans].flatMap(({ connection }) => connection ?? []);
    const gauge = (name: string, description: string, read: () => number) =>
      registerGauge(context, name, description, { "db.client.connection.pool.name": pool }, read);
    gauge("db.client.connection.used", "Connections in use", () => new Set(lent()).size);
    gauge("db.client.connection.pending_requests", "Statements waiting for a connection", () => {
      return loans.size - lent().length;
    });
    return {
      use: (tenant, work) =>
        Effect.suspend(() => {
          const loan: { connection?: PgConnection } = {};
          loans.add(loan);
          const used = lending.use(tenant, (connection) => {
            loan.connection = connection;
            return work(connection);
          });
          return Effect.onExit(used, (exit) => {
            loans.delete(loan);
            return note(exit);
          });
        }),
    };
  };

  return { note, observeLending };
});
