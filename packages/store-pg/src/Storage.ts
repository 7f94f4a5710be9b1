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
  Effect.catch(effect, (error): Effect.Effect<never, any> => {
    if (!isSqlError(error)) return Effect.fail(error);
    const state = (error.reason.cause as { readonly code?: unknown } | undefined)?.code;
    return unreachable.has(error.reason._tag) || outside.test(String(state ?? ""))
      ? Effect.fail(new StorageUnavailable({ cause: error }))
      : Effect.die(error);
  });

const isSqlError = (error: unknown): error is SqlError.SqlError =>
  typeof error === "object" && error !== null && "_tag" in error && error._tag === "SqlError";
