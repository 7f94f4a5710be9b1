/**
 * Pages of a chat's entries. One statement reads a page and its total, and so both of one snapshot; it gives no row if the
 * chat does not exist.
 */
import { ChatNotFound, type ChatStore, type EntryField, type EntryQuery } from "@parley/core";
import { Effect } from "effect";
import { entryColumns, entryOf, type EntryRow } from "../Rows.ts";
import { offsetOf, orderOf, positionOrder, type Reads, type Statement } from "./Paging.ts";

/** A history of so many entries is sorted by a `quick` statement. */
const few = 1_000;

export const makeListEntries = ({ bulk, quick }: Reads): ChatStore["Service"]["listEntries"] => {
  const read = (chatbot: number, chat: number, query: EntryQuery) => {
    const positions = positionOrder(query.orderBy);
    if (query.id !== null) return quick<Row>(chatbot, entriesBy(chatbot, chat, query));
    if (positions !== undefined) {
      return quick<Row>(chatbot, entriesByPosition(chatbot, chat, query, positions));
    }
    return Effect.flatMap(quick<Row>(chatbot, entriesBy(chatbot, chat, query, few)), (rows) =>
      rows.some(({ total }) => total > few)
        ? bulk<Row>(chatbot, entriesBy(chatbot, chat, query))
        : Effect.succeed(rows),
    );
  };
  return (chatbot, chatId, query) =>
    Effect.flatMap(read(chatbot, chatId, query), (rows) => {
      const [first] = rows;
      if (first === undefined) return Effect.fail(new ChatNotFound({ chatId }));
      return Effect.succeed({
        total: Number(first.total),
        items: first.id === null ? [] : (rows as ReadonlyArray<EntryRow>).map(entryOf),
      });
    });
};

/** A page without rows is one row of nulls, because the total must survive it. */
type Row = { readonly total: bigint } & (EntryRow | { readonly id: null });

const columns: Readonly<Record<EntryField, string>> = {
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

/** All entries in the order of positions, by a seek: erasures take chats whole, so that positions have no gaps. */
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

/** All entries in any order, or the one with the query's id; the page is empty if the chat has more than `atMost`. */
export const entriesBy = (
  chatbot: number,
  chat: number,
  query: EntryQuery,
  atMost?: number,
): Statement => {
  const values: Array<unknown> = [chatbot, chat, query.limit, offsetOf(query)];
  const parameter = (value: unknown) => `$${values.push(value)}::int8`;
  const from =
    query.id === null
      ? "entry"
      : `(select * from entry where chatbot_id = $1 and id = ${parameter(query.id)} offset 0) one`;
  const found = `from ${from} where chatbot_id = $1 and chat_id = $2::int8`;
  const page = atMost === undefined ? found : `${found} and chat.entries <= ${parameter(atMost)}`;
  return {
    text: pageOf(
      query.id === null ? "chat.entries" : `(select count(*) ${found})`,
      page,
      orderOf(query.orderBy, columns),
      "offset $4::int8",
    ),
    values,
  };
};
