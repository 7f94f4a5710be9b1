/**
 * Operators' view of the chats: erasures, exports and imports, and what answers have cost.
 */
import { ChatArchive, type UsageSum } from "@parley/core";
import { Effect } from "effect";
import type { PgPools } from "../database/PgPools.ts";
import { makeErasure } from "./ChatErasure.ts";
import { time } from "../Parameters.ts";
import { orUnavailable } from "../database/PgErrors.ts";
import { makeTransfer } from "./ChatTransfer.ts";

export const makeChatArchive = (pools: PgPools): ChatArchive["Service"] =>
  ChatArchive.of({
    erase: makeErasure(pools),
    ...makeTransfer(pools),
    usage: (chatbot, since) =>
      pools.operations.query<UsageSumRow>(chatbot, sumUsage, [chatbot, time(since)]).pipe(
        Effect.map((rows) => rows.map(usageSumOf)),
        orUnavailable,
      ),
  });

interface UsageSumRow {
  readonly provider: string;
  readonly model: string;
  readonly answers: bigint;
  readonly attempts: bigint;
  readonly prompt_tokens: string;
  readonly completion_tokens: string;
}

const usageSumOf = (row: UsageSumRow): UsageSum => ({
  provider: row.provider,
  model: row.model,
  answers: Number(row.answers),
  attempts: Number(row.attempts),
  promptTokens: Number(row.prompt_tokens),
  completionTokens: Number(row.completion_tokens),
});

const sumUsage = `
select provider, model, count(*) as answers, sum(attempts) as attempts,
  sum(prompt_tokens)::text as prompt_tokens, sum(completion_tokens)::text as completion_tokens
from entry where chatbot_id = $1 and create_time >= $2::timestamptz and provider is not null
group by provider, model order by provider, model`;
