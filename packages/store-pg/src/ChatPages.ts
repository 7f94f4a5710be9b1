/**
 * The statements that read one page of all chats and its total, both of one snapshot. Every text is put
 * together from fixed pieces; what a client sent is always a parameter.
 */
import type { Chat, ChatField, ChatQuery, OrderBy, Page } from "@parley/core";
import { positionOf } from "./Holes.ts";
import { milestoneBefore, milestonesDue } from "./Milestones.ts";
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
select tally.chats as total, page.*
from (values (1)) one
left join tally on tally.chatbot_id = $1
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
 * A page of all chats in the order of one text, by the positions that are picked after some joins. Of a chatbot
 * that it was not told of yet the planner would think that it has one chat: it is taken from its `tally`.
 */
const pageByText = (
  order: string,
  joins: string,
  picked: string,
  told = "tally.chats as total",
): string => `
select ${told}, chat.*
from (values (1)) one
left join tally on tally.chatbot_id = $1${joins}
left join lateral (${picked}) picked on true
left join lateral (
  select ${chatColumns}, position from chat
  where chatbot_id = tally.chatbot_id and position = picked.position limit 1
) chat on true
order by ${order}`;

type ByText = NonNullable<ReturnType<typeof byText>>;

/** One of the first pages of all chats in the order of one text: its index is walked from the beginning. */
export const firstByText = (
  chatbot: number,
  query: ChatQuery,
  { descending, field }: ByText,
): Statement => {
  const order = orderOf([{ field, descending }], sortColumns);
  const picked = `
  select position from chat where chatbot_id = tally.chatbot_id
  order by ${order} offset $2::int8 limit $3::int8`;
  return { text: pageByText(order, "", picked), values: [chatbot, offsetOf(query), query.limit] };
};

/** Rows of a page that also tells whether it is time to set milestones; null when there are no chats. */
export type AnyByTextRow = ChatPageRow & { readonly due: boolean | null };

/**
 * Any page of all chats in the order of one text: its index is walked from the nearer end, or from a milestone
 * in between. There those without the text, which come last, are looked for by themselves.
 */
export const anyByText = (
  chatbot: number,
  query: ChatQuery,
  { descending, field }: ByText,
): Statement => {
  const column = sortColumns[field];
  const ascending = orderOf([{ field, descending: false }], sortColumns);
  const reverse = orderOf([{ field, descending: true }], sortColumns);
  const joins = `
cross join lateral (
  select ${
    descending
      ? "greatest(chats - $2::int8 - $3::int8, 0) as first, greatest(chats - $2::int8, 0) as until"
      : "least($2::int8, chats) as first, least($2::int8 + $3::int8, chats) as until"
  }
) page
left join lateral (${milestoneBefore(column, "page.first")}) milestone on true
left join lateral (${milestonesDue(column)}) milestones on true`;
  const picked = `
  select position from (
    (select position from chat
      where chatbot_id = tally.chatbot_id and milestone.rank is null and page.first <= tally.chats / 2
      order by ${ascending} offset page.first limit page.until - page.first)
    union all
    (select position from chat
      where chatbot_id = tally.chatbot_id and milestone.rank is null and page.first > tally.chats / 2
      order by ${reverse} offset tally.chats - page.until limit page.until - page.first)
    union all
    (select position from chat
      where chatbot_id = tally.chatbot_id and (${column}, position) >= (milestone.text, milestone.position)
      order by ${ascending} offset page.first - milestone.rank limit page.until - page.first)
    union all
    (select position from chat
      where chatbot_id = tally.chatbot_id and ${column} is null and page.until > milestone.texts
        and position >= case when milestone.text is null then milestone.position else 0 end
      order by ${ascending}
      offset greatest(page.first, milestone.texts)
        - case when milestone.text is null then milestone.rank else milestone.texts end
      limit greatest(page.until - greatest(page.first, milestone.texts), 0))
  -- Tells the planner that few rows come of it.
  ) nearest limit $3::int8`;
  return {
    text: pageByText(
      descending ? reverse : ascending,
      joins,
      picked,
      "tally.chats as total, milestones.due",
    ),
    values: [chatbot, offsetOf(query), query.limit],
  };
};
