/**
 * Adds up what answers cost.
 */
import type { UsageGroup, UsageSum } from "@parley/core/ports";
import { time } from "../connections/PgParams.ts";
import type { Session } from "../connections/Session.ts";

export const sumUsage = (
  { query }: Pick<Session, "query">,
  chatbot: number,
  since: Date,
  by: UsageGroup | null,
) => query<UsageSum>(chatbot, usageBy(by), [chatbot, time(since)]);

const groups: Readonly<Record<UsageGroup, string>> = {
  day: "to_char(create_time at time zone 'UTC', 'YYYY-MM-DD')",
  key: "key_id",
  userRef: "(select user_ref from chat where chat.chatbot_id = $1 and chat.id = entry.chat_id)",
};

const usageBy = (by: UsageGroup | null) => `
select ${by === null ? "null::text" : groups[by]} as "group", provider, model,
  count(*)::float8 as answers, coalesce(sum(attempts), 0)::float8 as attempts,
  coalesce(sum(prompt_tokens), 0)::float8 as "promptTokens",
  coalesce(sum(completion_tokens), 0)::float8 as "completionTokens"
from entry where chatbot_id = $1 and create_time >= $2::timestamptz and question <> '' and not flagged
group by 1, provider, model`;
