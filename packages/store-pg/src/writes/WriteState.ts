/**
 * Guards writes. While PostgreSQL refuses them, or has no connection for them, they fail before a statement is sent, so
 * that no model is paid for an answer that cannot be stored.
 */
import type { PgConnection } from "@effect/sql-pg/PgConnection";
import { describeCause, registerGauge } from "@parley/core/ports";
import { Duration, Effect, Queue, Schedule, type Scope } from "effect";
import { SqlError } from "effect/sql";
import { watchAvailability } from "../connections/Availability.ts";
import type { DatabaseState, Tenant, TenantPool, Work } from "../connections/Checkout.ts";
import { inTime } from "../connections/Deadlines.ts";
import { codeOf, isWriteRefused, lacksConnection } from "../connections/PgErrors.ts";
import { millisNow } from "../connections/PgParams.ts";
import type { Session } from "../connections/Session.ts";
import { advanceSequences, idWarnings, withFreshIds } from "./IdSequences.ts";

const describeReadOnly = (reason: string) => `The database refuses writes: ${reason}.`;

const describeClock = (offset: number) => {
  const difference = Duration.format(Duration.seconds(Math.round(Math.abs(offset) / 1000)));
  return `This machine's clock is ${difference} ${offset < 0 ? "ahead of" : "behind"} the database's, which decides when keys expire and chats are erased.`;
};

/** Returns SQL for whether the role may draw ids from the sequence; null if the sequence does not exist. */
const mayDraw = (sequence: string) =>
  `has_sequence_privilege(to_regclass('${sequence}'), 'usage, update')`;

const stateRow = `
select ${millisNow} as now, case when pg_is_in_recovery() then 'it is a standby'
  when current_setting('transaction_read_only')::bool then 'its transactions are read-only by default'
  when not (${mayDraw("chat_id")} and ${mayDraw("entry_id")})
    then 'permission denied for sequences' end as reason`;

// These statements write to the tables that creations and asks use, and roll back. PostgreSQL checks privileges even if
// a statement affects no rows. The entry is large enough for its insertion to fail on a full disk.
const probes = [
  "begin",
  ...["chat", "chat_counter", "idempotency_key", "key_spending"].flatMap((table) => [
    `insert into ${table} select * from ${table} where false`,
    `update ${table} set chatbot_id = 0 where false`,
  ]),
  `insert into entry (chatbot_id, chat_id, id, position, question, answer, moderation, flagged, create_time)
  select 0, 0, 0, 0, '', string_agg(md5(n::text), ''), '', false, now() from generate_series(1, 10000) n`,
  "rollback",
];

export type WriteState = Effect.Success<ReturnType<typeof makeWriteState>>;

interface Refusal {
  readonly reason: string;
  /** The SQLSTATE. */
  readonly code: string;
}

const refusalOf = (error: SqlError.SqlError): Refusal => ({
  reason: describeCause(error),
  code: codeOf(error),
});

/**
 * @param connect opens a connection with the database's current settings
 * @param pool the connections for writes
 */
export const makeWriteState = Effect.fnUntraced(function* (
  connect: Effect.Effect<PgConnection, SqlError.SqlError, Scope.Scope>,
  reads: Session,
  pool: TenantPool,
  state: DatabaseState,
) {
  /** Why PostgreSQL refuses writes; `null` if it accepts them. */
  let readOnly: Refusal | null = null;
  /** Why PostgreSQL grants the pool no connection; `null` if it does. */
  let noSlot: Refusal | null = null;
  const refusal = () => noSlot ?? readOnly;
  /** The database's clock minus this machine's, in milliseconds. */
  let clockOffset = 0;
  let replacedAt = -Infinity;
  const context = yield* Effect.context<never>();
  const [writableDescription, clockDescription] = [
    "1 if the database accepts writes, 0 if it refuses them or is unavailable",
    "The database's clock minus the server's",
  ];
  const isWritable = () => (refusal() === null && !state.isUnavailable ? 1 : 0);
  registerGauge(context, "parley.database.writable", writableDescription, {}, isWritable);
  const offset = () => clockOffset / 1000;
  registerGauge(context, "parley.database.clock_offset", clockDescription, { unit: "s" }, offset);

  /** Records the clock offset, and returns why writes cannot succeed, both from the result of `stateRow`. */
  const readState = ([row]: ReadonlyArray<object>): Refusal | null => {
    const { now, reason } = row as { readonly now: number; readonly reason: string | null };
    clockOffset = now - Date.now();
    if (reason === null) return null;
    return { reason, code: reason.startsWith("permission") ? "42501" : "25006" };
  };
  /**
   * Tries to write, and returns why the database refuses writes, or `null` if it accepts them. After any other error,
   * returns the last known refusal.
   */
  const probe = Effect.fnUntraced(function* ({ query }: PgConnection) {
    const obstacle = readState((yield* query(stateRow)).rows);
    if (obstacle !== null) return obstacle;
    return yield* Effect.forEach(probes, (text) => query(text)).pipe(
      Effect.as(null),
      Effect.tapError(() => Effect.ignore(query("rollback"))),
      Effect.catch((error) =>
        Effect.sync(() => (isWriteRefused(error) ? refusalOf(error) : readOnly)),
      ),
    );
  });
  const probeRequests = yield* Queue.sliding<void>(1);
  /** Makes the loop below probe at once. */
  const probeSoon = Queue.offer(probeRequests, undefined);
  /** Logs that writes are refused from now on, or accepted again. */
  const logChange = (before: Refusal | null) => {
    const after = refusal();
    if ((before === null) === (after === null)) return Effect.void;
    return after === null
      ? Effect.logInfo("The database accepts writes again")
      : Effect.logWarning(describeReadOnly(after.reason));
  };
  const setReadOnly = (next: Refusal | null) =>
    Effect.suspend(() => {
      const [before, wasReadOnly] = [refusal(), readOnly !== null];
      readOnly = next;
      // The settings of open connections may date from when the database was read-only.
      if (next === null && wasReadOnly) replacedAt = state.replaceBefore = performance.now();
      const log = logChange(before);
      return next !== null && !wasReadOnly ? Effect.andThen(probeSoon, log) : log;
    });
  /** Records a refusal, unless the refused statement was sent before the connections were last replaced. */
  const setReadOnlySince = (sentAt: number, next: Refusal) =>
    sentAt < replacedAt ? Effect.void : setReadOnly(next);
  /** Records why PostgreSQL grants the pool no connection; `null` if it has granted one. */
  const setNoSlot = (error: SqlError.SqlError | null) =>
    Effect.suspend(() => {
      const before = refusal();
      noSlot = error && refusalOf(error);
      return logChange(before);
    });
  yield* watchAvailability(pool, connect, state, setNoSlot);
  yield* Queue.take(probeRequests).pipe(
    Effect.andThen(
      connect.pipe(
        Effect.flatMap((connection) => inTime(probe(connection))),
        Effect.flatMap(setReadOnly),
        Effect.scoped,
        Effect.ignoreCause,
        Effect.repeat({ until: () => readOnly === null, schedule: Schedule.spaced("1 second") }),
      ),
    ),
    Effect.forever,
    Effect.forkScoped,
  );
  /** Returns startup warnings. With `starts`, also tries to write, and advances the sequences if necessary. */
  const examine = Effect.fnUntraced(function* ({ starts }: { readonly starts: boolean }) {
    const connection = yield* connect;
    const { query } = connection;
    readOnly = starts ? yield* probe(connection) : readState((yield* query(stateRow)).rows);
    if (starts && readOnly !== null) yield* probeSoon;
    const warnings =
      readOnly === null
        ? idWarnings((yield* query(advanceSequences, [starts])).rows)
        : [describeReadOnly(readOnly.reason)];
    return [...(Math.abs(clockOffset) > 60_000 ? [describeClock(clockOffset)] : []), ...warnings];
  }, Effect.scoped);

  /** Only a probe ends the read-only state: an open connection may still accept writes when new connections do not. */
  const check = Effect.suspend(() => {
    const sentAt = performance.now();
    return Effect.flatMap(reads.query("operator", stateRow), (rows) => {
      const obstacle = readState(rows);
      return obstacle === null ? Effect.void : setReadOnlySince(sentAt, obstacle);
    });
  });
  const assertWritable = Effect.suspend(() => {
    const present = refusal();
    if (present === null) return Effect.void;
    const { code, reason } = present;
    const cause = Object.assign(new Error(describeReadOnly(reason)), { code });
    const connectionError = new SqlError.ConnectionError({ operation: "connect", cause });
    return Effect.fail(new SqlError.SqlError({ reason: connectionError }));
  });
  const recordRefusal = (error: unknown, sentAt: number) => {
    if (lacksConnection(error)) return noSlot === null ? setNoSlot(error) : Effect.void;
    if (!isWriteRefused(error)) return Effect.void;
    // A missing privilege may concern a single table: the probe tells whether asks and creations can succeed.
    return codeOf(error) === "42501" ? probeSoon : setReadOnlySince(sentAt, refusalOf(error));
  };
  const repeatWithFreshIds = withFreshIds(pool);
  const guardedPool: TenantPool = {
    use: <A, E, R>(tenant: Tenant, work: Work<A, E, R>) =>
      Effect.suspend(() => {
        const sentAt = performance.now();
        return Effect.andThen(assertWritable, repeatWithFreshIds(pool.use(tenant, work))).pipe(
          Effect.tapError((error) => recordRefusal(error, sentAt)),
        );
      }),
  };
  return {
    /** The connections for writes. Work fails at once while the database refuses writes. */
    guardedPool,
    examine,
    /** Fails while the database refuses writes, with an error that `isUnsent` recognizes. */
    assertWritable,
    /** Reads why the database refuses writes; `null` if it does not. */
    readOnlyReason: Effect.map(Effect.ignore(check), () => refusal()?.reason ?? null),
  };
});
