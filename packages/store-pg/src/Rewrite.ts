/**
 * Rewriting tables with their indexes, so that their files hold nothing but what is there: VACUUM leaves the bytes of
 * what was deleted in the free space of pages. Whoever wants such a table waits meanwhile.
 */
import { Effect, Schedule } from "effect";
import { texts } from "./Parameters.ts";
import type { Session } from "./Session.ts";
import { againAfterClash, isInTheWay, isStatementTimeout } from "./Storage.ts";
import { whileUntouched } from "./Untouched.ts";
import { vacuum } from "./Vacuum.ts";

/** What became of tables. */
export interface Rewritten {
  readonly rewritten: ReadonlyArray<string>;
  /** Others were in the way. */
  readonly busy: ReadonlyArray<string>;
}

/** However large they are; each is waited for as long as the session waits for locks. */
export const rewriteAll = Effect.fnUntraced(function* (
  session: Session,
  tables: ReadonlyArray<string>,
) {
  const rewritten: Array<string> = [];
  for (const table of tables) {
    const isDone = yield* whileUntouched(session, table, Effect.void).pipe(
      // An index that is being rebuilt would come to be two.
      Effect.andThen(againAfterClash(rewrite(session, table))),
      Effect.as(true),
      Effect.catchIf(isInTheWay, () => Effect.succeed(false)),
    );
    // What is in the way of one is in that of the next, too.
    if (!isDone) break;
    rewritten.push(table);
  }
  return { rewritten, busy: tables.slice(rewritten.length) };
});

/**
 * Those that have so many bytes at the most, with their indexes, in a moment when nobody uses them; not those that would
 * take a hasty session too long.
 */
export const rewriteSmall = Effect.fnUntraced(function* (
  session: Session,
  /** Waits for locks, and for statements, for a moment. */
  hasty: Session,
  tables: ReadonlyArray<string>,
  largest: number,
) {
  const small = yield* session.query<{ readonly name: string }>("operator", upTo, [
    texts(tables),
    largest,
  ]);
  const rewritten: Array<string> = [];
  const busy: Array<string> = [];
  for (const { name } of small) {
    yield* rewrite(hasty, name).pipe(
      Effect.retry({ while: isInTheWay, times: 2, schedule: Schedule.spaced("300 millis") }),
      Effect.map(() => rewritten.push(name)),
      Effect.catchIf(isInTheWay, () => Effect.sync(() => busy.push(name))),
      Effect.catchIf(isStatementTimeout, () => Effect.void),
    );
  }
  return { rewritten, busy };
});

const rewrite = (session: Session, table: string) =>
  Effect.andThen(
    session.command(`vacuum (full) ${table}`),
    // Which pages have nothing but what all may see was forgotten.
    vacuum(session, [table]),
  );

const upTo = `
select oid::regclass::text as name from pg_class
where oid = any ($1::text[]::regclass[]) and pg_total_relation_size(oid) <= $2::int8`;
