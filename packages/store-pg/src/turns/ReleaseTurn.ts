/**
 * Releases turns, and adds the tokens that their asks cost.
 */
import { StorageUnavailable, turnLease, type Turn, type TurnStore } from "@parley/core/ports";
import { Effect } from "effect";
import { deadlines } from "../connections/Deadlines.ts";
import { lacksConnection } from "../connections/PgErrors.ts";
import type { PgPools } from "../connections/PgPools.ts";
import { addSpending } from "../rows/Spending.ts";
import { batchStatement } from "../rows/Statements.ts";
import {
  changeOwned,
  hasRow,
  lockTurns,
  makeChange,
  mayRepeat,
  recordUnknown,
  retriesFor,
  turnColumns,
  type Outcome,
  type UnknownOutcomes,
} from "./TurnRows.ts";

interface Release extends Turn {
  /** The tokens that the ask cost. */
  readonly cost: { readonly apiKeyId: string; readonly tokens: number } | null;
}

export const makeReleaseTurn = Effect.fnUntraced(function* (
  pools: PgPools,
  unknownOutcomes: UnknownOutcomes,
) {
  const releaseTurn = yield* makeChange<Release, Outcome>(pools, releaseStatement);

  /**
   * The statement that ends a turn also adds its tokens. So a retry does not add them again: the turn's row shows
   * whether the statement has run. A turn that was lost, or had neither chat nor key, has no such row; its release then
   * names neither, and only adds the tokens. After an append or a release with an unknown outcome, such a release adds
   * none, because they may have been added already.
   */
  const release: TurnStore["Service"]["release"] = (turn, cost = null) => {
    const attemptRelease = (target: Turn) =>
      Effect.suspend(() => {
        const counts = hasRow(target) || !unknownOutcomes.has(turn);
        return releaseTurn({ ...target, cost: counts ? cost : null });
      }).pipe(
        recordUnknown(unknownOutcomes, turn),
        Effect.retry({
          while: (error) =>
            cost === null
              ? error._tag === "Overloaded"
              : mayRepeat(target)(error) && !lacksConnection((error as { cause?: unknown }).cause),
          // Without tokens, only a locked chat or a busy database is worth the wait of the failed ask.
          schedule: retriesFor(cost === null ? turnLease : deadlines.storeCall),
        }),
        Effect.asVoid,
      );
    const turnErrors = ["AnswerStopped", "ChatNotFound", "TurnLost"] as const;
    return attemptRelease(turn).pipe(
      // The key stays stopped, and the chat is free for other asks.
      Effect.catchTag("AnswerStopped", () => attemptRelease({ ...turn, idempotencyKey: null })),
      Effect.catchTag(turnErrors, () =>
        // The turn was lost, or its chat was erased: only the tokens are left to add.
        cost === null
          ? Effect.void
          : attemptRelease({ ...turn, chatId: null, idempotencyKey: null }),
      ),
      Effect.catchTag(turnErrors, () => Effect.void),
      Effect.catchTag("Overloaded", (cause) =>
        cost === null
          ? Effect.void
          : Effect.fail(new StorageUnavailable({ cause, reason: "timeout" })),
      ),
    );
  };
  return release;
});

// A released key counts as old: any request may claim it, and a sweep deletes it first. The tokens of a deleted chatbot
// are left out: a row in `key_spending` would violate the foreign key.
const releaseStatement = batchStatement<Release>(
  [
    ...turnColumns,
    ["key_id", "text", ({ cost }) => cost?.apiKeyId],
    ["spent_tokens", "int8", ({ cost }) => cost && BigInt(cost.tokens)],
  ],
  (
    items,
  ) => `${lockTurns(items)}, ${changeOwned("turn = null, turn_until = clock_timestamp()", "turn = null, made_at = '-infinity'")},
${addSpending(`(
  select key_id, spent_tokens from turn_row
  where outcome = 'owned' and spent_tokens is not null and exists (select from chatbot where id = $1)
) released_turn`)}
select index::int4 as index, outcome from turn_row`,
);
