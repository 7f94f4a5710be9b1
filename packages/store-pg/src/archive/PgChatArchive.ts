/**
 * The port `ChatArchive`: erasures, exports and imports, and the sums of usage.
 */
import { ChatArchive, type UsageGroup, type UsageSum } from "@parley/core";
import { Effect } from "effect";
import { toStorageUnavailable } from "../database/PgErrors.ts";
import { time } from "../database/PgParams.ts";
import type { PgPools } from "../database/PgPools.ts";
import { makeErasure } from "./ChatErasure.ts";
import { makeTransfer } from "./ChatTransfer.ts";

export const makeChatArchive = (pools: PgPools): ChatArchive["Service"] =>
  ChatArchive.of({
    erase: makeErasure(pools),
    ...makeTransfer(pools),
    usage: (chatbot, since, by = null) =>
      pools.transfer.pipe(
        Effect.flatMap(({ query }) =>
          query<UsageSum>(chatbot, sumUsage(by), [chatbot, time(since)]),
        ),
        Effect.map((rows) => rows.map((row) => ({ ...row }))),
        Effect.scoped,
        toStorageUnavailable,
      ),
  });

const groups: Readonly<Record<UsageGroup, string>> = {
  day: "to_char(create_time at time zone 'UTC', 'YYYY-MM-DD')",
  key: "key_id",
  userRef: "(select user_ref from chat where chat.chatbot_id = $1 and chat.id = entry.chat_id)",
};

const sumUsage = (by: UsageGroup | null) => `
select ${by === null ? "null::text" : groups[by]} as "group", provider, model,
  count(*)::float8 as answers, sum(attempts)::float8 as attempts,
  sum(prompt_tokens)::float8 as "promptTokens", sum(completion_tokens)::float8 as "completionTokens"
from entry where chatbot_id = $1 and create_time >= $2::timestamptz and provider is not null
group by 1, provider, model`;
