/**
 * What keeps PostgreSQL from removing rows that were deleted: whatever may still read them.
 */
import { Duration, Effect, Schedule } from "effect";
import { texts } from "./Parameters.ts";
import type { Session } from "./Session.ts";

/**
 * Whether everything ends, within so many seconds, that can still read what is deleted by now, or that has used the
 * tables by now. What begins meanwhile is waited for if it reads what an older one left, as it does while an older one
 * writes in another database: where those are waited for, too, nothing can read what is deleted by now any more.
 */
export const olderEnd = Effect.fnUntraced(function* (
  session: Session,
  tables: ReadonlyArray<string>,
  patience: number,
  /** `catalog`: of tables of PostgreSQL itself, which those who decode changes read. */
  { catalog = false, elsewhere = false } = {},
) {
  const [now] = yield* session.query<Now>("operator", whatIsNow, [texts(tables)]);
  const { horizon, users } = now!;
  const look = session.query<{ readonly over: boolean }>("operator", areOver, [
    horizon,
    texts(users),
    texts(tables),
    elsewhere,
    catalog,
  ]);
  const over = Effect.repeat(look, {
    until: ([found]) => found!.over,
    schedule: Schedule.spaced("50 millis"),
  });
  // Twice: one may have begun to read during the first look, before the last writer ended.
  return yield* Effect.andThen(over, over).pipe(
    Effect.as(true),
    Effect.timeoutOrElse({
      duration: Duration.seconds(patience),
      orElse: () => Effect.succeed(false),
    }),
  );
});

interface Now {
  /** The first number that no transaction has yet. */
  readonly horizon: string;
  /** Virtual numbers of the transactions that hold a lock on the tables. */
  readonly users: ReadonlyArray<string>;
}

const vacuuming = "select pid from pg_stat_progress_vacuum";

// They wait for none that does the same.
const alike = `
${vacuuming}
union all
select pid from pg_stat_progress_create_index
where command like '%CONCURRENTLY' and relid = any (tables)`;

const whatIsNow = `
select pg_snapshot_xmax(pg_current_snapshot())::text as horizon, array(
  select distinct held.virtualtransaction from pg_locks held
  where held.granted and held.database = (select oid from pg_database where datname = current_database())
    and held.relation = any (tables) and held.pid <> pg_backend_pid() and held.pid not in (${alike})
) as users
from (select $1::text[]::regclass[]::oid[] as tables) these`;

// Beside sessions of the database, replicas by their senders or slots, and transactions that are prepared.
const areOver = `
select not exists (
  select from pg_locks where virtualxid = any ($2::text[]) and mode = 'ExclusiveLock'
) and not exists (
  select from (
    select backend_xid as number from pg_stat_activity
    where ($4::bool or datname = current_database() or datname is null) and pid <> pg_backend_pid()
    union all
    select backend_xmin from pg_stat_activity
    where (datname = current_database() or datname is null) and pid <> pg_backend_pid()
      and coalesce(leader_pid, pid) not in (${vacuuming})
    union all
    select transaction from pg_prepared_xacts where $4::bool or database = current_database()
    union all
    select xmin from pg_replication_slots
    union all
    select catalog_xmin from pg_replication_slots where $5::bool
  ) held where age(number) > age($1::text::xid8::xid)
) as over
from (select $3::text[]::regclass[]::oid[] as tables) these`;
