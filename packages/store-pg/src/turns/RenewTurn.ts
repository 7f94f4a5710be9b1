/**
 * Renews the leases of turns on both chat and key, or on neither: an ask that took over one must not wait for the other.
 */
import type { TurnStore } from "@parley/core/ports";
import { Effect } from "effect";
import type { PgPools } from "../connections/PgPools.ts";
import { leaseEnd } from "../rows/IdempotencyKeys.ts";
import { batchStatement } from "../rows/Statements.ts";
import { lockTurns, makeChange, turnColumns } from "./TurnRows.ts";

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
  (items) => `${lockTurns(items)}, chats as (
  insert into chat (chatbot_id, id, position, create_time, entries, turn_until)
  select $1, locked_id, position, create_time, entries, ${leaseEnd}
  from turn_row where outcome = 'owned' and locked_id is not null
  on conflict (chatbot_id, id) do update set turn_until = excluded.turn_until
), keys as (
  insert into idempotency_key (chatbot_id, key, fingerprint, made_at, turn_until)
  select $1, key, '', clock_timestamp(), ${leaseEnd} from turn_row where outcome = 'owned' and key is not null
  on conflict (chatbot_id, key) do update set turn_until = excluded.turn_until
)
select index::int4 as index, outcome from turn_row`,
);
