/**
 * Pages of a chatbot's chats. One statement reads a page and its total, and so both of one snapshot:
 *
 * | the query asks for               | statement          | read as                            |
 * | -------------------------------- | ------------------ | ---------------------------------- |
 * | all chats, by id or time         | {@link byPosition} | `quick`                            |
 * | all chats, by name or userRef    | {@link byText}     | `bulk`                             |
 * | the chat with an id              | {@link filtered}   | `quick`                            |
 * | a user's chats, by id or time    | {@link filtered}   | `quick` up to {@link few}, or `bulk` |
 * | a search, and any other order    | {@link filtered}   | `bulk`                             |
 *
 * The texts are put together from fixed pieces; what a client sent is always a parameter.
 */
import type { Chat, ChatQuery, ChatStore, OrderBy, Page } from "@parley/core";
import { Effect } from "effect";
import { chatColumns, chatOf, type ChatRow } from "../Rows.ts";
import { positionOf } from "./ChatPositions.ts";
import { conditionOf, isSearch, type Search } from "./ChatSearch.ts";
import { offsetOf, orderOf, positionOrder, type Reads, type Statement } from "./Paging.ts";

/** So many chats of a user are counted, or skipped, by a `quick` statement. */
export const few = 10_000;

export const makeListChats = (
  { bulk, quick }: Reads,
  search: Search,
): ChatStore["Service"]["listChats"] => {
  const read = (chatbot: number, query: ChatQuery) => {
    const position = positionOrder(query.orderBy);
    const text = textOrder(query.orderBy);
    const isAll = query.id === null && query.userRef === null && !isSearch(query);
    if (isAll && position !== undefined) {
      return quick<Row>(chatbot, byPosition(chatbot, query, position));
    }
    if (isAll && text !== undefined) return bulk<Row>(chatbot, byText(chatbot, query, text));

    const matching = filtered(chatbot, query, search);
    if (query.id !== null) return quick<Row>(chatbot, matching);
    if (isSearch(query) || position === undefined || offsetOf(query) > few) {
      return bulk<Row>(chatbot, matching);
    }
    return Effect.flatMap(quick<Row>(chatbot, filtered(chatbot, query, search, few + 1)), (rows) =>
      Number(rows[0]!.total) > few ? bulk<Row>(chatbot, matching) : Effect.succeed(rows),
    );
  };
  return (chatbot, query) => Effect.map(read(chatbot, query), pageOf);
};

/** A page without rows is one row of nulls, because the total must survive it. */
type Row = { readonly total: bigint | null } & (ChatRow | { readonly id: null });

const pageOf = (rows: ReadonlyArray<Row>): Page<Chat> => ({
  total: Number(rows[0]!.total ?? 0),
  items: rows[0]!.id === null ? [] : (rows as ReadonlyArray<ChatRow>).map(chatOf),
});

/** The columns that chats are sorted by. */
const sortColumns = {
  id: "position",
  name: "name",
  userRef: "user_ref",
  _createTime: "create_time",
} as const;

/** All chats in the order of positions, by a seek: the rank of the page's first row gives its position. */
export const byPosition = (
  chatbot: number,
  query: ChatQuery,
  direction: "asc" | "desc",
): Statement => {
  const [rank, compare] = direction === "asc" ? ["$2::int8 + 1", ">="] : ["chats - $2::int8", "<="];
  return {
    text: `
select counter.chats as total, page.*
from (values (1)) one
left join chat_counter counter on counter.chatbot_id = $1
left join lateral (
  select case when chats = positions then ${rank} else (${positionOf(rank)}) end as position
) first on true
left join lateral (
  select ${chatColumns}, position from chat
  where chatbot_id = $1 and position ${compare} first.position
  order by position ${direction} limit $3::int8
) page on true
order by page.position ${direction}`,
    values: [chatbot, offsetOf(query), query.limit],
  };
};

type TextOrder = OrderBy<"name" | "userRef">;

/** The field whose index gives the order, if one does: a text alone, or followed by `id` alike. */
export const textOrder = ([first, ...rest]: ChatQuery["orderBy"]): TextOrder | undefined => {
  const { descending, field } = first;
  if (field !== "name" && field !== "userRef") return undefined;
  const isAlone = rest.every((next) => next.field === "id" && next.descending === descending);
  return isAlone ? { field, descending } : undefined;
};

/**
 * All chats in the order of one text: its index is walked from the nearer end. The chatbot is taken from the counter's row,
 * or the planner would think that a chatbot has one chat if it was never analyzed.
 */
export const byText = (
  chatbot: number,
  query: ChatQuery,
  { descending, field }: TextOrder,
): Statement => {
  const order = orderOf([{ field, descending }], sortColumns);
  const reverse = orderOf([{ field, descending: !descending }], sortColumns);
  return {
    text: `
select counter.chats as total, page.*
from (values (1)) one
left join chat_counter counter on counter.chatbot_id = $1
left join lateral (
  (select position from chat where chatbot_id = counter.chatbot_id and $2::int8 <= chats / 2
    order by ${order} offset $2::int8 limit $3::int8)
  union all
  (select position from chat where chatbot_id = counter.chatbot_id and $2::int8 > chats / 2
    order by ${reverse} offset greatest(chats - $2::int8 - $3::int8, 0)
    limit greatest(least(chats - $2::int8, $3::int8), 0))
  limit $3::int8
) picked on true
left join lateral (
  select ${chatColumns}, position from chat
  where chatbot_id = counter.chatbot_id and position = picked.position limit 1
) page on true
order by ${order}`,
    values: [chatbot, offsetOf(query), query.limit],
  };
};

/** The chats that match the filters, in any order; `atMost` ends the count of them. */
export const filtered = (
  chatbot: number,
  query: ChatQuery,
  search: Search,
  atMost?: number,
): Statement => {
  const values: Array<unknown> = [chatbot, query.limit, offsetOf(query)];
  const parameter = (value: unknown) => `$${values.push(value)}`;
  // One with an id is looked up first (`offset 0`), or the planner may walk an index in the order of the page.
  const from =
    query.id !== null
      ? `(select * from chat where chatbot_id = $1 and id = ${parameter(query.id)}::int8 offset 0) one`
      : isSearch(query)
        ? search.from
        : "chat";
  const conditions = ["chatbot_id = $1"];
  if (query.userRef !== null) conditions.push(`user_ref = ${parameter(query.userRef)}`);
  if (isSearch(query)) conditions.push(conditionOf(query.search, search, parameter));
  const matching = `from ${from} where ${conditions.join(" and ")}`;
  const counted =
    atMost === undefined
      ? matching
      : `from (select ${matching} limit ${parameter(atMost)}::int8) matching`;
  const order = orderOf(query.orderBy, sortColumns);
  // The second condition on the page saves another scan where the total tells that the page is empty.
  return {
    text: `
select counted.total, page.*
from (select count(*) as total ${counted}) counted
left join lateral (
  select ${chatColumns}, position ${matching} and counted.total > $3::int8
  order by ${order} limit $2::int8 offset $3::int8
) page on true
order by ${order}`,
    values,
  };
};
