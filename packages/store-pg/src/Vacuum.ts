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
    (table) => againAfterClash(session.command(`vacuum (index_cleanup on) ${table}`)),
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
) {
  yield* vacuum(session, tables);
  for (let tries = 0; tries < 2; tries++) {
    const left = yield* session.query<{ readonly name: string }>("operator", withDeadRows, [
      texts(tables),
    ]);
    if (left.length === 0) return true;
    if (!(yield* olderEnd(session, tables, patience, { elsewhere: true }))) return false;
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

/** Ends what waits in a session for so many seconds until nobody stands on a page: no `lock_timeout` does. */
export const whileUnpinned = <A, E, R>(
  session: Session,
  watcher: Session,
  patience: number,
  effect: Effect.Effect<A, E, R>,
): Effect.Effect<A, E | SqlError.SqlError | Pinned, R> =>
  Effect.gen(function* () {
    const [own] = yield* session.query<{ readonly pid: number }>(
      "operator",
      "select pg_backend_pid() as pid",
    );
    let seconds = 0;
    const look = Effect.map(
      watcher.query("operator", isPinned, [own!.pid]),
      (found) => (seconds = found.length === 0 ? 0 : seconds + 1),
    );
    const pinned = Effect.repeat(look, {
      until: () => seconds > patience,
      schedule: Schedule.spaced("1 second"),
    });
    return yield* Effect.raceFirst(effect, Effect.andThen(pinned, Effect.fail(new Pinned())));
  });

const isPinned = `
select from pg_stat_activity where pid = $1::int4 and wait_event_type = 'BufferPin'`;
