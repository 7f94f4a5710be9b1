/**
 * What a key opens, and that it was used.
 */
import { ChatbotDirectory } from "@parley/core";
import { Effect, Stream } from "effect";
import {
  chatbotColumns,
  chatbotOf,
  keyColumns,
  keyOf,
  type ChatbotRow,
  type KeyRow,
} from "../ChatbotRows.ts";
import type { Notifications } from "../database/Notifications.ts";
import type { PgPools } from "../database/PgPools.ts";
import { texts } from "../Parameters.ts";
import { orUnavailable } from "../database/PgErrors.ts";

export const makeChatbotDirectory = ({ reads, writes }: PgPools, notifications: Notifications) =>
  ChatbotDirectory.of({
    open: (keyId) =>
      reads.query<ChatbotRow & KeyRow>("operator", openKey, [keyId]).pipe(
        Effect.map(([row]) => {
          if (row === undefined) return null;
          const { expiresAt, hash, scopes } = keyOf(row);
          return { hash, scopes, expiresAt, chatbot: chatbotOf(row) };
        }),
        orUnavailable,
      ),
    used: (keyIds) =>
      writes.query("operator", noteUse, [texts(keyIds)]).pipe(Effect.asVoid, orUnavailable),
    changed: Stream.map(notifications("changed"), (id) => (id === null ? null : Number(id))),
  });

const openKey = `
select ${chatbotColumns}, ${keyColumns}
from api_key join chatbot on chatbot.id = api_key.chatbot_id
where api_key.id = $1 and revoked_at is null`;
const noteUse = `
update api_key set last_used_at = clock_timestamp()
where id = any ($1::text[])
  and (last_used_at is null or last_used_at < clock_timestamp() - interval '59 seconds')`;
