/**
 * Failures of the database: of what kind they are, which are tried again, and what is told of the others.
 */
import { ChatbotNotFound, Overloaded, StorageUnavailable } from "@parley/core";
import { Effect, Fiber, Schedule, type Context } from "effect";
import { SqlError } from "effect/sql";

/** What somebody is told who would have to wait for too long. */
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

/** Longer than the server lets any statement run: who answers later does not answer at all. */
const deadline = 35_000;

/**
 * Ends the waiting for a database that does not answer. The work is a fiber of its own, so that this
 * holds in uninterruptible regions, too; an interruption of the waiting interrupts it.
 */
const inTime = <A, E, R, E2>(
  effect: Effect.Effect<A, E, R>,
  late: (cause: Error) => E2,
): Effect.Effect<A, E | E2, R> =>
  Effect.contextWith((context: Context.Context<R>) =>
    Effect.callback<A, E | E2>((resume) => {
      const fiber = Effect.runForkWith(context)(effect);
      const timer = setTimeout(() => {
        resume(Effect.fail(late(new Error("no answer in 35 s"))));
        fiber.interruptUnsafe();
      }, deadline);
      fiber.addObserver((exit) => {
        clearTimeout(timer);
        resume(exit);
      });
      return Effect.suspend(() => {
        clearTimeout(timer);
        return Fiber.interrupt(fiber);
      });
    }),
  );

/**
 * The answer to a statement where nothing else would end the waiting for it, as that which begins or ends a
 * transaction. Its connection is not used again then: it is closed, or is older than any that is lent.
 */
export const answered = <A>(
  statement: Effect.Effect<A, SqlError.SqlError>,
): Effect.Effect<A, SqlError.SqlError> =>
  inTime(
    statement,
    (cause) => new SqlError.SqlError({ reason: new SqlError.ConnectionError({ cause }) }),
  );

/**
 * Turns a failing database into {@link StorageUnavailable}; a statement that is wrong is a defect.
 */
export const orUnavailable = <A, E, R>(
  effect: Effect.Effect<A, E | SqlError.SqlError, R>,
): Effect.Effect<A, Exclude<E, SqlError.SqlError> | StorageUnavailable, R> =>
  withoutDeadline(inTime(effect, (cause) => new StorageUnavailable({ cause })));

/** The same for what may take as long as it needs. */
export const withoutDeadline = <A, E, R>(
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
  Effect.retry(statement, { while: isLockTimeout, times: 2 });

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

const isOutside = (error: SqlError.SqlError): boolean =>
  unreachable.has(error.reason._tag) || outside.test(codeOf(error));
