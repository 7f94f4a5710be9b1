/**
 * Maps database errors to the core's errors, and repeats work that ended because of locks.
 */
import {
  ChatbotNotFound,
  Overloaded,
  StorageUnavailable,
  type OverloadReason,
  type StorageReason,
} from "@parley/core/ports";
import { Data, Effect, Schedule } from "effect";
import { SqlError } from "effect/sql";

/** The database cannot be used. The message says why, in one line. */
export class PostgresUnusable extends Data.TaggedError("PostgresUnusable")<{
  readonly message: string;
  readonly cause?: unknown;
}> {}

export const cannotBeUsed = (reason: string, cause?: unknown) =>
  new PostgresUnusable({ message: `The database cannot be used: ${reason}.`, cause });

export const databaseOverload = (reason: OverloadReason) =>
  new Overloaded({ retryAfterSeconds: 2, reason });

const hasReason =
  (reason: SqlError.SqlErrorReason["_tag"]) =>
  (error: unknown): error is SqlError.SqlError =>
    SqlError.isSqlError(error) && error.reason._tag === reason;

export const isDeadlock = hasReason("DeadlockError");
export const isLockTimeout = hasReason("LockTimeoutError");
/** Also true for a cancelled statement. */
export const isStatementTimeout = hasReason("StatementTimeoutError");
export const isUniqueViolation = hasReason("UniqueViolation");

export const codeOf = ({ reason }: SqlError.SqlError): string =>
  String((reason.cause as { readonly code?: unknown } | undefined)?.code ?? "");

/**
 * Whether a write failed because a new id was already in use, or no id could be drawn: see `advance_sequences` in
 * `0001_initial.ts`.
 */
export const mayReuseIds = (error: unknown) =>
  SqlError.isSqlError(error) &&
  (error.reason._tag === "UniqueViolation"
    ? /^(chat|entry|chatbot|audit)_pkey$/.test(error.reason.constraint)
    : codeOf(error) === "23502");

/** Whether the database refused a write: it is read-only, its disk is full, or the role lacks a privilege. */
export const isWriteRefused = (error: unknown): error is SqlError.SqlError =>
  SqlError.isSqlError(error) && /^(25006|53100|42501)$/.test(codeOf(error));

/** Whether PostgreSQL refused a connection because the server, the database or the role has no slot left. */
export const lacksConnection = (error: unknown): error is SqlError.SqlError =>
  SqlError.isSqlError(error) && error.reason.operation === "connect" && codeOf(error) === "53300";

/** Whether the statement that failed cannot have reached the database. */
export const isUnsent = ({ cause }: StorageUnavailable): boolean =>
  SqlError.isSqlError(cause) && cause.reason.operation === "connect";

/**
 * SQLSTATE codes and classes that mean the database is unavailable: connection, stale plans (0A000, 26000), read-only,
 * timeouts, authorization, rollback, privilege, resources, lock, operator intervention, system; and, while a restore
 * runs, a schema, table, function, type, unique constraint or open relation (XX000) that is missing. A missing column
 * (42703) and damage (XX001, XX002) do not pass by themselves.
 */
const unavailableCodes =
  /^(08|0A000|25006|25P0[34]|26000|28|3F000|40|42501|42704|42883|42P01|42P10|53|55P03|57|58|XX000)/;

const storageReasons: ReadonlyArray<readonly [RegExp, StorageReason]> = [
  [/^53300/, "no_connection"],
  [/^53100/, "disk_full"],
  [/^25006/, "read_only"],
  [/^(28|42501)/, "refused"],
  [/^(25P0[34]|55P03|57014)/, "timeout"],
];

const reasonOf = (error: SqlError.SqlError): StorageReason => {
  if (isStatementTimeout(error) || isLockTimeout(error)) return "timeout";
  return storageReasons.find(([codes]) => codes.test(codeOf(error)))?.[1] ?? "down";
};

/** Maps database failures to {@link StorageUnavailable}. An error in a statement becomes a defect. */
export const toStorageUnavailable = <A, E, R>(effect: Effect.Effect<A, E | SqlError.SqlError, R>) =>
  Effect.catchIf(effect, SqlError.isSqlError, (error) =>
    error.isRetryable || unavailableCodes.test(codeOf(error))
      ? Effect.fail(new StorageUnavailable({ cause: error, reason: reasonOf(error) }))
      : Effect.die(error),
  ) as Effect.Effect<A, Exclude<E, SqlError.SqlError> | StorageUnavailable, R>;

/** Maps a lock timeout to {@link Overloaded}, and other failures as {@link toStorageUnavailable} does. */
export const toStoreErrors = <A, E, R>(effect: Effect.Effect<A, E | SqlError.SqlError, R>) =>
  toStorageUnavailable(
    Effect.catchIf(effect, isLockTimeout, (error) =>
      // Without a code, the work has waited for a connection.
      Effect.fail(databaseOverload(codeOf(error) === "" ? "database_busy" : "locked")),
    ),
  );

/** Maps a foreign key violation in a write to {@link ChatbotNotFound}. */
export const toChatbotNotFound =
  (chatbot: number) =>
  <A, E, R>(write: Effect.Effect<A, E, R>): Effect.Effect<A, E | ChatbotNotFound, R> =>
    Effect.catchIf(
      write,
      (error) => SqlError.isSqlError(error) && codeOf(error) === "23503",
      () => Effect.fail(new ChatbotNotFound({ chatbot })),
    );

/** Repeats the work at once, and then as the schedule says, which `Effect.retry` would prepare even for success, in 5 us. */
export const retry = <A, E, R>(
  work: Effect.Effect<A, E, R>,
  options: {
    readonly while: (error: E) => boolean;
    readonly schedule: () => Schedule.Schedule<unknown, E>;
  },
): Effect.Effect<A, E, R> =>
  Effect.catch(work, (error) =>
    options.while(error)
      ? Effect.retry(work, { while: options.while, schedule: options.schedule() })
      : Effect.fail(error),
  );

/** Repeats what a deadlock has rolled back, and what has waited for a row lock as long as it may. */
export const retryOnLocks = <A, E, R>(work: Effect.Effect<A, E | SqlError.SqlError, R>) =>
  Effect.retry(work, {
    while: (error) => isDeadlock(error) || isLockTimeout(error),
    times: 14,
    schedule: Schedule.spaced("1 second"),
  });
