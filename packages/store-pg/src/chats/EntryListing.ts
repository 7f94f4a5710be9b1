/**
 * Pages of a chat's entries. One statement reads a page and its total, so that both are of one snapshot. It returns no
 * row if the chat does not exist.
 */
import { ChatNotFound, type ChatStore, type EntryField, type EntryQuery } from "@parley/core";
import { Effect } from "effect";
import type { Statement } from "../database/TenantSession.ts";
import { entryColumns, toEntry, type EntryRow } from "../rows/ChatRows.ts";
import {
  offsetOf,
  orderOf,
  positionOrder,
  readInBulk,
  readQuickly,
  type ListPools,
} from "./ChatListing.ts";

export const makeListEntries = (pools: ListPools): ChatStore["Service"]["listEntries"] => {
  const read = (chatbot: number, chat: number, query: EntryQuery) => {
    const direction = positionOrder(query.orderBy);
    if (query.id === null && direction !== undefined) {
      return readQuickly<Row>(pools, chatbot, entriesByPosition(chatbot, chat, query, direction));
    }
    const readEntries = query.id === null ? readInBulk : readQuickly;
    return readEntries<Row>(pools, chatbot, entriesBy(chatbot, chat, query));
  };
  return (chatbot, chatId, query) =>
    Effect.flatMap(read(chatbot, chatId, query), (rows) => {
      const [first] = rows;
      if (first === undefined) return Effect.fail(new ChatNotFound({ chatId }));
      return Effect.succeed({
        total: Number(first.total),
        items: first.id === null ? [] : (rows as ReadonlyArray<EntryRow>).map(toEntry),
      });
    });
};

/** An empty page is one row of nulls with the total. */
type Row = { readonly total: bigint } & (EntryRow | { readonly id: null });

const sortColumns: Readonly<Record<EntryField, string>> = {
  id: "position",
  chat_id: "chat_id",
  question: "question",
  answer: "answer",
  moderation: "moderation",
  flagged: "flagged",
  _createTime: "create_time",
};

const pageOf = (total: string, page: string, order: string, offset = ""): string => `
select ${total} as total, page.*
from chat left join lateral (
  select ${entryColumns}, position ${page}
  order by ${order} limit $3::int8 ${offset}
) page on true
where chat.chatbot_id = $1 and chat.id = $2::int8
order by ${order}`;

/** All entries in the order of positions, by a seek: an erasure deletes whole chats, so that positions have no gaps. */
export const entriesByPosition = (
  chatbot: number,
  chat: number,
  query: EntryQuery,
  direction: "asc" | "desc",
): Statement => {
  const first = direction === "asc" ? "position > $4::int8" : "position <= chat.entries - $4::int8";
  return {
    text: pageOf(
      "chat.entries",
      `from entry where chatbot_id = $1 and chat_id = $2::int8 and ${first}`,
      `position ${direction}`,
    ),
    values: [chatbot, chat, query.limit, offsetOf(query)],
  };
};

/** All entries in any order, or the one with the query's id. */
export const entriesBy = (chatbot: number, chat: number, query: EntryQuery): Statement => {
  const from =
    query.id === null
      ? "entry"
      : "(select * from entry where chatbot_id = $1 and id = $5::int8 offset 0) one";
  const matching = `from ${from} where chatbot_id = $1 and chat_id = $2::int8`;
  return {
    text: pageOf(
      query.id === null ? "chat.entries" : `(select count(*) ${matching})`,
      matching,
      orderOf(query.orderBy, sortColumns),
      "offset $4::int8",
    ),
    values: [chatbot, chat, query.limit, offsetOf(query), ...(query.id === null ? [] : [query.id])],
  };
};
