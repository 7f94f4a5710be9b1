/**
 * Implements the port `TurnStore`. Each method that changes a turn has a file of its own; `TurnRows.ts` has what their
 * statements share.
 */
import { turnEntries, TurnStore, type Entry, type Spending } from "@parley/core/ports";
import { Effect } from "effect";
import type { ChatCreation } from "../chats/ChatCreation.ts";
import { toStorageUnavailable } from "../connections/PgErrors.ts";
import type { PgPools } from "../connections/PgPools.ts";
import { entryColumns } from "../rows/ChatRows.ts";
import { readSpending } from "../rows/Spending.ts";
import { byPrimaryKey } from "../rows/Statements.ts";
import { makeAppendEntry } from "./AppendEntry.ts";
import { makeReleaseTurn } from "./ReleaseTurn.ts";
import { makeRenewTurn } from "./RenewTurn.ts";
import { makeStopAsk } from "./StopAsk.ts";
import { makeTakeTurn } from "./TakeTurn.ts";
import type { UnknownOutcomes } from "./TurnRows.ts";

type Port = TurnStore["Service"];

export const makeTurnStore = Effect.fnUntraced(function* (pools: PgPools, creation: ChatCreation) {
  const { reads } = pools;
  const unknownOutcomes: UnknownOutcomes = new WeakMap();
  const renew = yield* makeRenewTurn(pools);
  const append = yield* makeAppendEntry(pools, creation, unknownOutcomes);
  const release = yield* makeReleaseTurn(pools, unknownOutcomes);

  const earlier: Port["earlier"] = ({ chatbot, chatId }, before) =>
    toStorageUnavailable(reads.query<Entry>(chatbot, olderEntries, [chatbot, chatId, before]));

  const take = yield* makeTakeTurn(pools, (turn) => earlier(turn, Number.MAX_SAFE_INTEGER));

  const stop = makeStopAsk(pools);

  const spending: Port["spending"] = (chatbot, apiKeyId) =>
    toStorageUnavailable(
      Effect.map(
        reads.query<Spending>(chatbot, readSpending, [chatbot, apiKeyId]),
        ([row]) => row!,
      ),
    );

  return TurnStore.of({ take, earlier, renew, append, stop, release, spending });
});

// If the chat has no entry with the id `$3`, `$3` itself bounds the position: an entry's position is never greater than
// its own id, which is below `$3`.
const olderEntries = `
select ${entryColumns("entry")} from entry
where chatbot_id = $1 and chat_id = $2::int8 and id < $3::int8 and position < coalesce(
  (select position from entry ${byPrimaryKey("id", "$3::int8", "chat_id = $2::int8")}), $3::int8)
order by position desc limit ${turnEntries}`;
