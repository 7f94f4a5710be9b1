/**
 * Two ways to rebuild an index. Each tells whether it did, and gives up where others would wait for it, or it for others,
 * for long.
 */
import { Effect, Predicate, Schedule } from "effect";
import type { Session } from "./Session.ts";
import { againAfterClash, isInTheWay, isStatementTimeout } from "./Storage.ts";
import { whileUntouched } from "./Untouched.ts";

export interface TextIndex {
  readonly name: string;
  readonly table: string;
}

/** In a moment when nobody uses the index; whoever wants to waits for it. */
export const rebuildAtOnce = (session: Session, { name }: TextIndex) =>
  session
    .transaction(
      "operator",
      Effect.gen(function* () {
        yield* session.query("operator", "set local lock_timeout = '200ms'");
        yield* session.query("operator", "set local statement_timeout = '400ms'");
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
  dropUnfinished(session, table, 200).pipe(
    Effect.andThen(session.command(`reindex index concurrently ${name}`)),
    Effect.onError(() => Effect.ignore(dropUnfinished(session, table, 3))),
    againAfterClash,
    Effect.as(true),
    Effect.catchIf(isInTheWay, () => Effect.succeed(false)),
  );

/** Drops what is left of rebuildings that broke off; nobody is at one while the table is untouched. */
const dropUnfinished = (session: Session, table: string, tries: number) =>
  whileUntouched(
    session,
    table,
    Effect.flatMap(
      session.query<{ readonly drop: string }>("operator", unfinished, [table]),
      (left) => Effect.forEach(left, ({ drop }) => session.query("operator", drop)),
    ),
    { tries },
  );

const unfinished = `
select format('drop index %I', relname) as drop
from pg_index join pg_class on pg_class.oid = indexrelid
where indrelid = $1::text::regclass and not indisvalid and relname ~ '_cc(new|old)[0-9]*$'`;
