/**
 * The kinds of database errors, which of them are retried, and what they are to the core.
 */
import { ChatbotNotFound, Overloaded, StorageUnavailable } from "@parley/core";
import { Effect, Schedule } from "effect";
import { SqlError } from "effect/sql";

/** The error of work that would have to wait for too long. */
export const busy = new Overloaded({ retryAfterSeconds: 2 });

const failedBy =
  (reason: SqlError.SqlErrorReason["_tag"]) =>
  (error: unknown): error is SqlError.SqlError =>
    SqlError.isSqlError(error) && error.reason._tag === reason;

const isDeadlock = failedBy("DeadlockError");

export const isLockTimeout = failedBy("LockTimeoutError");

/** Also of a statement that was cancelled. */
export const isStatementTimeout = failedBy("StatementTimeoutError");

export const isUniqueViolation = failedBy("UniqueViolation");

/** SQLSTATE of a row that refers to one that is not there. */
export const isForeignKeyViolation = (error: unknown): error is SqlError.SqlError =>
  SqlError.isSqlError(error) && codeOf(error) === "23503";

/** SQLSTATE classes: connection, read-only, ended by a limit, rollback, resources, lock, operator intervention, system. */
const outside = /^(08|25006|25P0[34]|40|53|55P03|57|58)/;

const unreachable: ReadonlySet<string> = new Set([
  "ConnectionError",
  "AuthenticationError",
  "AuthorizationError",
  "DeadlockError",
  "SerializationError",
  "LockTimeoutError",
  "StatementTimeoutError",
]);

/**
 * Turns a failing database into {@link StorageUnavailable}; a statement that is wrong is a defect.
 */
export const orUnavailable = <A, E, R>(
  effect: Effect.Effect<A, E | SqlError.SqlError, R>,
): Effect.Effect<A, Exclude<E, SqlError.SqlError> | StorageUnavailable, R> =>
  Effect.catchIf(effect, SqlError.isSqlError, (error) =>
    isOutside(error) ? Effect.fail(new StorageUnavailable({ cause: error })) : Effect.die(error),
  ) as Effect.Effect<A, Exclude<E, SqlError.SqlError> | StorageUnavailable, R>;

/** The same for what waits for locks: one that is held for too long is {@link Overloaded}. */
export const orBusy = <A, E, R>(
  effect: Effect.Effect<A, E | SqlError.SqlError, R>,
): Effect.Effect<A, Exclude<E, SqlError.SqlError> | StorageUnavailable | Overloaded, R> =>
  orUnavailable(
    Effect.catch(effect, (error): Effect.Effect<never, E | SqlError.SqlError | Overloaded> =>
      isLockTimeout(error) ? Effect.fail(busy) : Effect.fail(error),
    ),
  ) as Effect.Effect<A, Exclude<E, SqlError.SqlError> | StorageUnavailable | Overloaded, R>;

/**
 * A transaction that is begun again after a deadlock: the database has undone it whole.
 */
export const againAfterClash = <A, E, R>(
  transaction: Effect.Effect<A, E | SqlError.SqlError, R>,
): Effect.Effect<A, E | SqlError.SqlError, R> =>
  Effect.retry(transaction, {
    while: isDeadlock,
    times: 5,
    schedule: Schedule.jittered(Schedule.exponential("20 millis")),
  });

/**
 * What gave up on a lock, tried again: in all for longer than a process that stands still in the middle of a
 * transaction can hold one.
 */
export const againAfterLock = <A, E, R>(
  statement: Effect.Effect<A, E | SqlError.SqlError, R>,
): Effect.Effect<A, E | SqlError.SqlError, R> =>
  Effect.retry(statement, { while: isLockTimeout, times: 3 });

/** A write that fails because its chatbot is not registered. */
export const orChatbotNotFound =
  (chatbot: number) =>
  <A, E, R>(write: Effect.Effect<A, E, R>): Effect.Effect<A, E | ChatbotNotFound, R> =>
    Effect.catchIf(write, isForeignKeyViolation, () =>
      Effect.fail(new ChatbotNotFound({ chatbot })),
    );

/** A statement that looks first whether a name is taken, when another took it in between. */
export const againAfterUniqueViolation = <A, E, R>(
  statement: Effect.Effect<A, E | SqlError.SqlError, R>,
): Effect.Effect<A, E | SqlError.SqlError, R> =>
  Effect.retry(statement, { while: isUniqueViolation, times: 5 });

const codeOf = ({ reason }: SqlError.SqlError): string =>
  String((reason.cause as { readonly code?: unknown } | undefined)?.code ?? "");

/** Whether the statement cannot have reached the database, so that nothing was stored. */
export const isUnsent = ({ cause }: StorageUnavailable): boolean =>
  SqlError.isSqlError(cause) && cause.reason.operation === "connect";

const isOutside = (error: SqlError.SqlError): boolean =>
  unreachable.has(error.reason._tag) || outside.test(codeOf(error));
