/**
 * Two ways to rebuild an index. Each tells whether it did, and gives up where others would wait for it, or it for others,
 * for long.
 */
import { Effect, Predicate, Schedule } from "effect";
import { texts } from "./Parameters.ts";
import type { Session } from "./Session.ts";
import { againAfterClash, isInTheWay, isStatementTimeout, unfinishedIndex } from "./Storage.ts";
import { endIdle, whileUntouched } from "./Untouched.ts";

export interface TextIndex {
  readonly name: string;
  readonly table: string;
}

/** In a moment when nobody uses the index; whoever wants to waits for it, so many milliseconds at the most. */
export const rebuildAtOnce = (session: Session, { name }: TextIndex, longest: number) =>
  session
    .transaction(
      "operator",
      Effect.gen(function* () {
        yield* session.query("operator", "set local lock_timeout = '200ms'");
        yield* session.query("operator", `set local statement_timeout = ${longest}`);
        yield* session.query("operator", endIdle);
        yield* session.query("operator", `reindex index ${name}`);
      }),
    )
    .pipe(
      Effect.retry({ while: isInTheWay, times: 2, schedule: Schedule.spaced("300 millis") }),
      Effect.as(true),
      Effect.catchIf(Predicate.or(isInTheWay, isStatementTimeout), () => Effect.succeed(false)),
    );

/**
 * While others use the index, as its owner. It waits for all transactions that began before, so that the session must
 * give up on locks some time.
 */
export const rebuildInUse = (session: Session, { name, table }: TextIndex) =>
  // After whoever is at one.
  whileUntouched(session, table, Effect.void).pipe(
    Effect.andThen(session.command(`reindex index concurrently ${name}`)),
    Effect.onError(() => Effect.ignore(dropUnfinished(session, table))),
    againAfterClash,
    Effect.as(true),
    Effect.catchIf(isInTheWay, () => Effect.succeed(false)),
  );

/** Drops what is left of rebuildings that broke off, as the owner; fails while anybody uses the table. */
export const dropUnfinished = (session: Session, table: string) =>
  whileUntouched(
    session,
    table,
    // Nobody is at one now.
    Effect.flatMap(unfinishedOf(session, [table]), (left) =>
      Effect.forEach(left, (name) => session.query("operator", `drop index ${name}`)),
    ),
    { tries: 3 },
  );

/**
 * Indexes of the tables that were not rebuilt to the end, where nobody is seen at it. One may have become valid since, as
 * the table was rewritten.
 */
export const unfinishedOf = (session: Session, tables: ReadonlyArray<string>) =>
  Effect.map(
    session.query<{ readonly name: string }>("operator", unfinished, [texts(tables)]),
    (rows) => rows.map(({ name }) => name),
  );

const unfinished = `
select quote_ident(relname) as name from pg_index join pg_class on pg_class.oid = indexrelid
where indrelid = any ($1::text[]::regclass[]) and relname ~ '${unfinishedIndex}'
  and indrelid not in (select relid from pg_stat_progress_create_index where relid is not null)`;
