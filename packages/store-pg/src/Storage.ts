/**
 * Which failures of the database an operator must mend, and which are our own mistakes.
 */
import { StorageUnavailable } from "@parley/core";
import { Effect } from "effect";
import type { SqlError } from "effect/sql";

/** SQLSTATE classes: connection, resources, operator intervention, system, read-only, rollback. */
const outside = /^(08|25006|40|53|55P03|57|58)/;

const unreachable: ReadonlySet<string> = new Set([
  "ConnectionError",
  "AuthenticationError",
  "AuthorizationError",
  "DeadlockError",
  "SerializationError",
  "LockTimeoutError",
  "StatementTimeoutError",
]);

/** Turns a failing database into {@link StorageUnavailable}; a statement that is wrong is a defect. */
export const orUnavailable = <A, E, R>(
  effect: Effect.Effect<A, E | SqlError.SqlError, R>,
): Effect.Effect<A, Exclude<E, SqlError.SqlError> | StorageUnavailable, R> =>
  Effect.catchCause(effect, (cause): Effect.Effect<never, any> => {
    // A transaction whose ROLLBACK fails, as it does when the connection is lost, ends as a defect.
    const errors = cause.reasons.map((reason) =>
      reason._tag === "Fail" ? reason.error : reason._tag === "Die" ? reason.defect : undefined,
    );
    const lost = errors.find((error) => isSqlError(error) && isOutside(error));
    if (lost !== undefined) return Effect.fail(new StorageUnavailable({ cause: lost }));
    const failed = cause.reasons.find((reason) => reason._tag === "Fail");
    return failed !== undefined && isSqlError(failed.error)
      ? Effect.die(failed.error)
      : Effect.failCause(cause);
  });

const isOutside = ({ reason }: SqlError.SqlError): boolean => {
  const state = (reason.cause as { readonly code?: unknown } | undefined)?.code;
  return unreachable.has(reason._tag) || outside.test(String(state ?? ""));
};

const isSqlError = (error: unknown): error is SqlError.SqlError =>
  typeof error === "object" && error !== null && "_tag" in error && error._tag === "SqlError";
