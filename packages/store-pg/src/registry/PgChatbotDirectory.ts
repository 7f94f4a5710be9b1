/**
 * Implements the port `ChatbotDirectory`, which finds a key with its chatbot and records when keys are used.
 */
import { ChatbotId, ChatbotDirectory, grantOf } from "@parley/core/ports";
import { Effect, Stream } from "effect";
import type { Notifications } from "../database/Notifications.ts";
import { toStorageUnavailable } from "../database/PgErrors.ts";
import { millisNow, texts } from "../database/PgParams.ts";
import type { PgPools } from "../database/PgPools.ts";
import {
  chatbotColumns,
  keyColumns,
  toChatbot,
  toKey,
  type ChatbotRow,
  type KeyRow,
} from "../rows/ChatbotRows.ts";

type Port = ChatbotDirectory["Service"];

export const makeChatbotDirectory = ({ reads, writes }: PgPools, notifications: Notifications) => {
  const find: Port["find"] = (keyId) =>
    reads.query<GrantRow>("operator", findKey, [keyId]).pipe(
      Effect.map(([row]) =>
        row === undefined ? null : grantOf(toKey(row), toChatbot(row), row.nowMillis),
      ),
      toStorageUnavailable,
    );

  const recordUse: Port["recordUse"] = (keyIds) =>
    writes.query("operator", recordUses, [texts(keyIds)]).pipe(Effect.asVoid, toStorageUnavailable);

  const changes = Stream.map(notifications("changed"), (id) =>
    id === null ? null : ChatbotId.make(Number(id), { disableChecks: true }),
  );

  return ChatbotDirectory.of({ find, recordUse, changes });
};

type GrantRow = ChatbotRow & KeyRow & { readonly nowMillis: number };

const findKey = `
select ${chatbotColumns}, ${keyColumns}, ${millisNow} as "nowMillis"
from api_key join chatbot on chatbot.id = api_key.chatbot_id
where api_key.id = $1 and revoked_at is null`;

const recordUses = `
update api_key set last_used_at = clock_timestamp()
where id = any ($1::text[])
  and (last_used_at is null or last_used_at < clock_timestamp() - interval '59 seconds')`;
