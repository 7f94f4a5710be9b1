/**
 * Renews the leases of turns on both chat and key, or on neither: an ask that took over one must not wait for the other.
 */
import type { TurnStore } from "@parley/core/ports";
import { Effect } from "effect";
import type { PgPools } from "../connections/PgPools.ts";
import { leaseEnd } from "../rows/IdempotencyKeys.ts";
import { batchStatement } from "../rows/Statements.ts";
import { changeOwned, lockTurns, makeChange, turnColumns } from "./TurnRows.ts";

export const makeRenewTurn = Effect.fnUntraced(function* (pools: PgPools) {
  const renewTurn = yield* makeChange(pools, renewStatement);
  const renew: TurnStore["Service"]["renew"] = (turn) =>
    renewTurn(turn).pipe(
      Effect.as(true),
      Effect.catchTags({
        TurnLost: () => Effect.succeed(false),
        // The chat is locked, or the database is busy: the next renewal will do.
        Overloaded: () => Effect.succeed(true),
      }),
    );
  return renew;
});

const renewStatement = batchStatement(
  turnColumns,
  (
    items,
  ) => `${lockTurns(items)}, ${changeOwned(`turn_until = ${leaseEnd}`, `turn_until = ${leaseEnd}`)}
select index::int4 as index, outcome from turn_row`,
);
