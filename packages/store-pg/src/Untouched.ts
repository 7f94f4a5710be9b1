import { Effect, Schedule } from "effect";
import type { Session } from "./Session.ts";
import { isInTheWay } from "./Storage.ts";

/** A process that stands still in the middle of a transaction must not keep its locks. */
export const endIdle = "set local idle_in_transaction_session_timeout = '5s'";

/**
 * A transaction in which nobody else vacuums, analyzes or rebuilds indexes of the table. REINDEX CONCURRENTLY waits for
 * all that began before, and so, in a deadlock, for what waits for it: this waits for some milliseconds, again and again,
 * half a minute in all.
 */
export const whileUntouched = <A, E, R>(
  session: Session,
  table: string,
  effect: Effect.Effect<A, E, R>,
  { millis = 200, tries = 60 }: { readonly millis?: number; readonly tries?: number } = {},
) =>
  session
    .transaction(
      "operator",
      Effect.gen(function* () {
        yield* session.query("operator", `set local lock_timeout = ${millis}`);
        yield* session.query("operator", endIdle);
        yield* session.query("operator", `lock table ${table} in share update exclusive mode`);
        return yield* effect;
      }),
    )
    .pipe(
      Effect.retry({
        while: isInTheWay,
        times: tries - 1,
        schedule: Schedule.spaced("300 millis"),
      }),
    );

/** Whether a session waits for locks no longer than was asked for: a pooler may have dropped the setting. */
export const isBounded = (session: Session, lockTimeout: string) =>
  Effect.map(
    session.query<{ readonly lock_timeout: string }>("operator", "show lock_timeout"),
    ([granted]) => granted!.lock_timeout === lockTimeout,
  );
