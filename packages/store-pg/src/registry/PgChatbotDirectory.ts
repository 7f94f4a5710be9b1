/**
 * Implements the port `ChatbotDirectory`, which finds a key with its chatbot and records when keys are used.
 */
import { ChatbotDirectory, grantOf, type RegisteredKey } from "@parley/core/ports";
import { Effect } from "effect";
import { toStorageUnavailable } from "../connections/PgErrors.ts";
import { millisNow, texts } from "../connections/PgParams.ts";
import type { PgPools } from "../connections/PgPools.ts";
import {
  chatbotColumns,
  keyColumns,
  toChatbot,
  toKey,
  type ChatbotRow,
} from "../rows/ChatbotRows.ts";

type Port = ChatbotDirectory["Service"];

export const makeChatbotDirectory = ({ reads, writes }: PgPools) => {
  const find: Port["find"] = (keyId) =>
    reads.query<GrantRow>("operator", findKey, [keyId]).pipe(
      Effect.map(([row]) =>
        row === undefined ? null : grantOf(toKey(row), toChatbot(row), row.nowMillis),
      ),
      toStorageUnavailable,
    );

  const recordUse: Port["recordUse"] = (keyIds) =>
    writes.query("operator", recordUses, [texts(keyIds)]).pipe(Effect.asVoid, toStorageUnavailable);

  return ChatbotDirectory.of({ find, recordUse });
};

type GrantRow = ChatbotRow & RegisteredKey & { readonly nowMillis: number };

const findKey = `
select ${chatbotColumns}, ${keyColumns}, ${millisNow} as "nowMillis"
from api_key join chatbot on chatbot.id = api_key.chatbot_id
where api_key.id = $1 and revoked_at is null`;

const recordUses = `
update api_key set last_used_at = clock_timestamp()
where id = any ($1::text[])
  and (last_used_at is null or last_used_at < clock_timestamp() - interval '59 seconds')`;
