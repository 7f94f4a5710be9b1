/**
 * The sequences that ids are drawn from. If a write fails because ids might be reused, they are advanced, and the write
 * is repeated.
 */
import type { Result } from "@effect/sql-pg/PgConnection";
import { Effect } from "effect";
import type { SqlError } from "effect/sql";
import type { TenantPool } from "../connections/Checkout.ts";
import { mayReuseIds } from "../connections/PgErrors.ts";

/**
 * Returns SQL for the sequence to draw ids from, evaluated once per statement. In a database that did not issue the
 * latest ids, such as a copy, the sequence is null, so that the insertion fails.
 */
export const ownSequence = (name: "chat_id" | "entry_id") =>
  `(select case when is_same_database() then '${name}'::regclass end)`;

/**
 * SQL for whether ids might be reused, because the sequences come from another database or lag behind the rows. If so
 * and the parameter is `true`, the statement moves the sequences past all ids.
 */
export const advanceSequences = "select advance_sequences($1::bool) as may_reuse_ids";

const idsMoved =
  "New ids start at least 100,000 higher, so that no id is reused: the database seems to have been restored, copied, replicated, or promoted from a standby.";

/** Returns the warning for the result of {@link advanceSequences}; none if no id might be reused. */
export const idWarnings = ([row]: Result["rows"]) =>
  row!["may_reuse_ids"] === true ? [idsMoved] : [];

/** Repeats writes that fail because ids might be reused. */
export const withFreshIds = ({ use }: TenantPool) => {
  const repair = Effect.flatMap(
    use("operator", ({ query }) => query(advanceSequences, [true])),
    ({ rows }) => Effect.forEach(idWarnings(rows), (warning) => Effect.logWarning(warning)),
  );
  return <A, E, R>(write: Effect.Effect<A, E | SqlError.SqlError, R>) =>
    Effect.catch(write, (error): typeof write =>
      mayReuseIds(error) ? Effect.andThen(repair, write) : Effect.fail(error),
    );
};
