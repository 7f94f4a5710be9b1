/**
 * The port `ChatArchive`: erasures, exports and imports, and the sums of usage.
 */
import { ChatArchive } from "@parley/core";
import { Effect } from "effect";
import { toStorageUnavailable } from "../database/PgErrors.ts";
import { time } from "../database/PgParams.ts";
import type { PgPools } from "../database/PgPools.ts";
import { makeErasure } from "./ChatErasure.ts";
import { makeTransfer } from "./ChatTransfer.ts";

interface UsageSumRow {
  readonly provider: string;
  readonly model: string;
  readonly answers: bigint;
  readonly attempts: bigint;
  readonly prompt_tokens: string;
  readonly completion_tokens: string;
}

export const makeChatArchive = (pools: PgPools): ChatArchive["Service"] =>
  ChatArchive.of({
    erase: makeErasure(pools),
    ...makeTransfer(pools),
    usage: (chatbot, since) =>
      pools.transfer.pipe(
        Effect.flatMap(({ query }) =>
          query<UsageSumRow>(chatbot, sumUsage, [chatbot, time(since)]),
        ),
        Effect.map((rows) =>
          rows.map(({ answers, attempts, completion_tokens, model, prompt_tokens, provider }) => ({
            provider,
            model,
            answers: Number(answers),
            attempts: Number(attempts),
            promptTokens: Number(prompt_tokens),
            completionTokens: Number(completion_tokens),
          })),
        ),
        Effect.scoped,
        toStorageUnavailable,
      ),
  });

const sumUsage = `
select provider, model, count(*) as answers, sum(attempts) as attempts,
  sum(prompt_tokens)::text as prompt_tokens, sum(completion_tokens)::text as completion_tokens
from entry where chatbot_id = $1 and create_time >= $2::timestamptz and provider is not null
group by provider, model`;
