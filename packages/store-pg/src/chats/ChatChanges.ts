/**
 * What clients change in chats that exist: the verbs as statements.
 */
import { fold, type Chat, type ColdTx, type Reads, type VisitorErasures } from "@parley/core/ports";
import { Effect } from "effect";
import type { Session, SqlVerbs } from "../connections/Session.ts";
import {
  chatColumns,
  entryColumns,
  everything,
  toChat,
  toEntry,
  type StoredEntry,
} from "../rows/ChatRows.ts";

export const chatReads = ({
  query,
}: Pick<Session, "query">): SqlVerbs<Pick<Reads, "ownChat" | "visitorErasures">> => ({
  ownChat: (chatbot, id, visitor) =>
    Effect.map(query<Chat>(chatbot, selectChat, [chatbot, id, visitor]), ([row]) =>
      row === undefined ? null : toChat(row),
    ),
  visitorErasures: (limit) => query<VisitorErasures>("operator", newestErasures, [limit]),
});

export const chatVerbs = (
  session: Pick<Session, "query">,
): SqlVerbs<
  Pick<ColdTx, "ownChat" | "visitorErasures" | "renameChat" | "rateEntry" | "countVisitorErasure">
> => ({
  ...chatReads(session),
  renameChat: (chatbot, id, name, visitor) =>
    Effect.map(
      session.query<Chat>(chatbot, rename, [chatbot, id, visitor, name, name && fold(name)]),
      ([row]) => (row === undefined ? null : toChat(row)),
    ),
  rateEntry: (chatbot, chat, id, { comment, rating }) =>
    Effect.map(
      session.query<StoredEntry>(chatbot, rate, [
        chatbot,
        chat,
        id,
        rating !== undefined,
        rating ?? null,
        comment !== undefined,
        comment ?? null,
      ]),
      ([row]) => (row === undefined ? null : toEntry(row)),
    ),
  countVisitorErasure: (chatbot, apiKeyId) =>
    Effect.asVoid(session.query(chatbot, countErasure, [chatbot, apiKeyId])),
});

const isOwn = `chat.chatbot_id = $1 and chat.id = $2::int8 and ($3::text is null or chat.user_ref = $3)`;
const selectChat = `select ${chatColumns("chat")} from chat where ${isOwn}`;
const rename = `
update chat set name = $4::text, folded_name = $5::text where ${isOwn} returning ${chatColumns("chat")}`;

const rate = `
update entry set rating = case when $4::bool then $5::text else rating end,
  comment = case when $6::bool then $7::text else comment end
where chatbot_id = $1 and chat_id = $2::int8 and id = $3::int8
returning ${entryColumns("entry", everything)}`;

const countErasure = `
insert into visitor_erasure as today (chatbot_id, key_id, day, time, chats)
values ($1, $2, (clock_timestamp() at time zone 'UTC')::date, clock_timestamp(), 1)
on conflict (chatbot_id, key_id, day) do update set time = excluded.time, chats = today.chats + 1`;
const newestErasures = `
select chatbot_id as chatbot, key_id as "apiKeyId", time, chats from visitor_erasure
order by time desc limit $1::int8`;
