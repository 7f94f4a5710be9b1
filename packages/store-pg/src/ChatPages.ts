/**
 * The statements that read one page of all chats and its total, both of one snapshot. Every text is put
 * together from fixed pieces; what a client sent is always a parameter.
 */
import type { Chat, ChatField, ChatQuery, OrderBy, Page } from "@parley/core";
import { positionOf } from "./Holes.ts";
import { offsetOf, orderOf, type Statement } from "./Pages.ts";
import { chatColumns, chatOf, type ChatRow } from "./Rows.ts";

/** Rows of a page; a page without rows is one row of nulls, because the total must survive it. */
export type ChatPageRow = { readonly total: bigint | null } & (ChatRow | { readonly id: null });

export const chatPageOf = (rows: ReadonlyArray<ChatPageRow>): Page<Chat> => ({
  total: Number(rows[0]!.total ?? 0),
  items: rows[0]!.id === null ? [] : (rows as ReadonlyArray<ChatRow>).map(chatOf),
});

/** The field whose index gives the order, if one does: a text alone, or followed by `id` alike. */
export const byText = (
  orderBy: ReadonlyArray<OrderBy<ChatField>>,
): { readonly field: "name" | "userRef"; readonly descending: boolean } | undefined => {
  const [{ descending, field }, second, ...rest] = orderBy as [
    OrderBy<ChatField>,
    ...Array<OrderBy<ChatField>>,
  ];
  if ((field !== "name" && field !== "userRef") || rest.length > 0) return undefined;
  return second === undefined || (second.field === "id" && second.descending === descending)
    ? { field, descending }
    : undefined;
};

/** Ranks from either end that are counted off, although there are holes: this is quicker than looking them up. */
const near = 128;

/** A page of all chats by position: the rank of its first row is turned into a position. */
const seekPage = (rank: string, compare: "<=" | ">=", direction: "desc" | "asc") => `
select chat_counter.chats as total, page.*
from (values (1)) one
left join chat_counter on chat_counter.chatbot_id = $1
left join lateral (
  select case
    when chats = positions then ${rank}
    when $2::int8 < ${near} then (
      select position from chat where chatbot_id = $1
      order by position ${direction} offset $2::int8 limit 1
    )
    else (${positionOf(rank)})
  end as position
) first on true
left join lateral (
  select ${chatColumns}, position from chat
  where chatbot_id = $1 and position ${compare} first.position
  order by position ${direction} limit $3::int8
) page on true
order by page.position ${direction}`;
const newestPage = seekPage("chats - $2::int8", "<=", "desc");
const oldestPage = seekPage("$2::int8 + 1", ">=", "asc");

/** Any page of all chats in the order of ids or times, by a seek. */
export const seek = (chatbot: number, query: ChatQuery, descending: boolean): Statement => ({
  text: descending ? newestPage : oldestPage,
  values: [chatbot, offsetOf(query), query.limit],
});

/** The columns that chats are sorted by. */
export const sortColumns = {
  id: "position",
  name: "name",
  userRef: "user_ref",
  _createTime: "create_time",
} as const;

/**
 * Any page of all chats in the order of one text: its index is walked from the nearer end. The planner would think that a
 * chatbot that ANALYZE did not see has one chat, so the chatbot is taken from its `chat_counter`.
 */
export const anyByText = (
  chatbot: number,
  query: ChatQuery,
  { descending, field }: NonNullable<ReturnType<typeof byText>>,
): Statement => {
  const order = orderOf([{ field, descending }], sortColumns);
  const reverse = orderOf([{ field, descending: !descending }], sortColumns);
  return {
    text: `
select chat_counter.chats as total, chat.*
from (values (1)) one
left join chat_counter on chat_counter.chatbot_id = $1
cross join lateral (
  select $2::int8 as first, least($2::int8 + $3::int8, chats) as until
) page
left join lateral (
  select position from (
    (select position from chat
      where chatbot_id = chat_counter.chatbot_id and page.first <= chat_counter.chats / 2
      order by ${order} offset page.first limit greatest(page.until - page.first, 0))
    union all
    (select position from chat
      where chatbot_id = chat_counter.chatbot_id and page.first > chat_counter.chats / 2
      order by ${reverse} offset chat_counter.chats - page.until limit greatest(page.until - page.first, 0))
  -- Tells the planner that few rows come of it.
  ) nearest limit $3::int8
) picked on true
left join lateral (
  select ${chatColumns}, position from chat
  where chatbot_id = chat_counter.chatbot_id and position = picked.position limit 1
) chat on true
order by ${order}`,
    values: [chatbot, offsetOf(query), query.limit],
  };
};
