/**
 * Rewriting tables with their indexes, so that their files hold nothing but what is there: VACUUM leaves the bytes of
 * what was deleted in the free space of pages. Whoever wants such a table waits meanwhile.
 */
import { Effect, Predicate, Schedule } from "effect";
import type { Clients } from "./Clients.ts";
import { texts } from "./Parameters.ts";
import type { Session } from "./Session.ts";
import { isInTheWay, isStatementTimeout } from "./Storage.ts";
import { vacuum } from "./Vacuum.ts";

/** However large they are; fails where one is held for longer than the session waits for locks. */
export const rewrite = (session: Session, tables: ReadonlyArray<string>) =>
  Effect.forEach(
    tables,
    (table) =>
      Effect.andThen(
        session.command(`vacuum (full) ${table}`),
        // Which pages have nothing but what all may see was forgotten.
        vacuum(session, [table]),
      ),
    { discard: true },
  );

/**
 * Those that have so many bytes at the most, with their indexes, in a moment when nobody uses them and in so many
 * milliseconds each; gives which.
 */
export const rewriteSmall = (
  { migrator }: Clients,
  tables: ReadonlyArray<string>,
  { largest, longest }: { readonly largest: number; readonly longest: number },
) =>
  Effect.gen(function* () {
    const session = yield* migrator({ lockTimeout: "200ms", statementTimeout: `${longest}ms` });
    // Without it whoever wants the table would wait behind this for as long as anybody uses it.
    if (!(yield* isBounded(session, "200ms"))) return [];
    const small = yield* session.query<{ readonly name: string }>("operator", upTo, [
      texts(tables),
      largest,
    ]);
    return yield* Effect.filter(
      small.map(({ name }) => name),
      (table) =>
        rewrite(session, [table]).pipe(
          Effect.retry({ while: isInTheWay, times: 2, schedule: Schedule.spaced("300 millis") }),
          Effect.as(true),
          Effect.catchIf(Predicate.or(isInTheWay, isStatementTimeout), () => Effect.succeed(false)),
        ),
    );
  }).pipe(Effect.scoped);

const upTo = `
select oid::regclass::text as name from pg_class
where oid = any ($1::text[]::regclass[]) and pg_total_relation_size(oid) <= $2::int8`;

/** Whether a session waits for locks no longer than was asked for: a pooler may have dropped the setting. */
export const isBounded = (session: Session, lockTimeout: string) =>
  Effect.map(
    session.query<{ readonly lock_timeout: string }>("operator", "show lock_timeout"),
    ([granted]) => granted!.lock_timeout === lockTimeout,
  );
