/**
 * Removing rows that were deleted, which PostgreSQL leaves for those who may still read them.
 */
import { Data, Effect, Schedule } from "effect";
import type { SqlError } from "effect/sql";
import { olderEnd } from "./OlderTransactions.ts";
import { texts } from "./Parameters.ts";
import type { Session } from "./Session.ts";
import { againAfterClash } from "./Storage.ts";

/** Once; skipped without an error where the role may not. */
export const vacuum = (session: Session, tables: ReadonlyArray<string>) =>
  Effect.forEach(
    tables,
    (table) =>
      // Of a process that was killed nothing else would end it. Not known everywhere.
      Effect.ignore(session.query("operator", "set client_connection_check_interval = '5s'")).pipe(
        Effect.andThen(session.command(`vacuum (index_cleanup on) ${table}`)),
        againAfterClash,
      ),
    { discard: true },
  );

/**
 * Until nothing is left that was deleted before; tells whether that is so, or somebody goes on for longer than so many
 * seconds who may read it. One who began only then may have read it, too, beside a writer in another database, or stand
 * on a page, as cursors do: VACUUM leaves those out.
 */
export const vacuumThoroughly = Effect.fnUntraced(function* (
  session: Session,
  tables: ReadonlyArray<string>,
  patience: number,
  { catalog = false } = {},
) {
  yield* vacuum(session, tables);
  for (let tries = 0; tries < 2; tries++) {
    const left = yield* session.query<{ readonly name: string }>("operator", withDeadRows, [
      texts(tables),
    ]);
    if (left.length === 0) return true;
    // Those of PostgreSQL itself are used by all.
    const used = catalog ? [] : tables;
    const isOver = yield* olderEnd(session, used, patience, { elsewhere: true, catalog });
    if (!isOver) return false;
    yield* vacuum(
      session,
      left.map(({ name }) => name),
    );
  }
  // What is left again and again is what others delete meanwhile.
  return true;
});

/** As VACUUM has just counted them, and others since. */
const withDeadRows = `
select oid::regclass::text as name from pg_class
where oid = any ($1::text[]::regclass[])
  and pg_stat_get_dead_tuples(oid) + coalesce(pg_stat_get_dead_tuples(nullif(reltoastrelid, 0)), 0) > 0`;

/** Somebody stands on a page of an index for longer than one waits. */
export class Pinned extends Data.TaggedError("Pinned")<{}> {}

/** Ends a VACUUM that waits for so many seconds until nobody stands on a page: no `lock_timeout` does. */
export const whileUnpinned = <A, E, R>(
  watcher: Session,
  patience: number,
  effect: Effect.Effect<A, E, R>,
): Effect.Effect<A, E | SqlError.SqlError | Pinned, R> =>
  Effect.suspend(() => {
    let seconds = 0;
    const look = Effect.map(
      watcher.query("operator", pinned),
      (found) => (seconds = found.length === 0 ? 0 : seconds + 1),
    );
    const isPinned = Effect.repeat(look, {
      until: () => seconds > patience,
      schedule: Schedule.spaced("1 second"),
    });
    return Effect.raceFirst(effect, Effect.andThen(isPinned, Effect.fail(new Pinned())));
  });

// Any of the role, on whatever connection: an index may be left to a worker.
const pinned = `
select from pg_stat_activity
where datname = current_database() and usename = session_user and query like 'vacuum (%'
  and wait_event_type = 'BufferPin'`;
