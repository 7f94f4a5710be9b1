/**
 * The statements that read one page of a chat's entries and its total, both of one snapshot. A chat
 * that does not exist gives no row.
 */
import type { EntryField, EntryQuery } from "@parley/core";
import { offsetOf, orderOf, type Statement } from "./Pages.ts";
import { entryColumns } from "./Rows.ts";

const seekPage = (from: string) => `
select chat.entries as total, page.*
from chat left join lateral (
  select ${entryColumns}, position from entry
  where chatbot_id = $1 and chat_id = $2::int8 and position ${from} limit $4::int8
) page on true
where chat.chatbot_id = $1 and chat.id = $2::int8
order by page.position`;
const newestPage = `${seekPage("<= chat.entries - $3::int8 order by position desc")} desc`;
const oldestPage = seekPage("> $3::int8 order by position");

/** Any page of all entries in the order of ids or times, by a seek. */
export const seekEntries = (
  chatbot: number,
  chat: number,
  query: EntryQuery,
  descending: boolean,
): Statement => ({
  text: descending ? newestPage : oldestPage,
  values: [chatbot, chat, offsetOf(query), query.limit],
});

const columns: Readonly<Record<EntryField, string>> = {
  id: "position",
  chat_id: "chat_id",
  question: "question",
  answer: "answer",
  moderation: "moderation",
  flagged: "flagged",
  _createTime: "create_time",
};

/** A page in any order, of all entries or of the one with the query's id. */
export const anyEntries = (chatbot: number, chat: number, query: EntryQuery): Statement => {
  const order = orderOf(query.orderBy, columns);
  const values: Array<unknown> = [chatbot, chat, query.limit, offsetOf(query)];
  const from =
    query.id === null
      ? "entry"
      : `(select * from entry where chatbot_id = $1 and id = $${values.push(query.id)}::int8 offset 0) entry`;
  const matching = "chatbot_id = $1 and chat_id = $2::int8";
  const total =
    query.id === null ? "chat.entries" : `(select count(*) from ${from} where ${matching})`;
  return {
    text: `
select ${total} as total, page.*
from chat left join lateral (
  select ${entryColumns}, position
  from ${from} where ${matching}
  order by ${order} limit $3::int8 offset $4::int8
) page on true
where chat.chatbot_id = $1 and chat.id = $2::int8
order by ${order}`,
    values,
  };
};
