/**
 * The statements that count the chats that match filters and read one page of them, both of one snapshot. Every
 * text is put together from fixed pieces; what a client sent is always a parameter.
 */
import type { ChatQuery } from "@parley/core";
import { sortColumns, type ChatPageRow } from "./ChatPages.ts";
import { mostRemembered, positionsFrom, type Count } from "./Counts.ts";
import { offsetOf, orderOf, type Statement } from "./Pages.ts";
import { array } from "./Parameters.ts";
import { chatColumns } from "./Rows.ts";
import { conditionsOf, plainly, type Searching } from "./Searching.ts";

export interface CountRow {
  /** `null` when a remembered count is void. */
  readonly total: bigint | null;
  /** The position up to which was counted. */
  readonly reached?: bigint;
  readonly edition?: string;
  /** Positions of the newest that match, descending. */
  readonly newest?: ReadonlyArray<bigint>;
  /** Positions of the oldest that match, ascending; null when they were not looked for. */
  readonly oldest?: ReadonlyArray<bigint> | null;
}

export type MatchingRow = ChatPageRow &
  CountRow & {
    /** As `newest`, but only of those after the remembered ones; null when those are not known. */
    readonly later?: ReadonlyArray<bigint> | null;
  };

/** How many chats are looked through, one after the other, before a pass is quicker. */
export const walk = 100_000;

// Of a chatbot that the planner was not told of yet it would think that it has one chat, and that all its indexes are
// as good: what is looked up by position is taken from the chat_counter's chatbot, or calculated first (`offset 0`).

/** By what the chats up to a position are known to be the same ones. */
const editionAt = (position: string): string => `
concat(coalesce(chat_counter.positions - chat_counter.chats, 0), (
  select concat(' ', id, ' ', extract(epoch from create_time)) from chat
  where chatbot_id = chat_counter.chatbot_id and position = ${position} limit 1
))`;

/**
 * The count, from a remembered one on; null when its chats are not the same any more, or so many came after them
 * that it takes a pass. With the newest that match and came after it, if it knows the newest.
 */
const countedOn = (
  { edition, matching: before, newest, reached }: Count,
  [others, matches]: ReturnType<typeof conditionsOf>,
  values: Array<unknown>,
  from: Searching["from"],
): string => {
  const parameter = (value: unknown) => `$${values.push(value)}::int8`;
  const upTo = parameter(reached);
  const later = `from (
      select position, folded_name from ${from} where ${others} and position > ${upTo} order by position limit ${walk}
    ) later where ${matches}`;
  const few = `coalesce(chat_counter.positions, 0) - ${upTo} <= ${walk}`;
  return `
select case when ${few} and ${editionAt(upTo)} = $${values.push(edition)}
    then ${parameter(before)} + (select count(*) ${later}) end as total,
  ${
    newest === null
      ? "null::int8[]"
      : `case when ${few} then
    array(select position ${later} order by position desc limit ${parameter(mostRemembered)}) end`
  } as later`;
};

/** A page of the chats that match, by their positions. */
const pageOf = (positions: string, direction: "desc" | "asc"): string => `
select ${chatColumns}, position
from (
  select position from ${positions} order by position ${direction} limit $2::int8 offset $3::int8
) picked join lateral (
  select ${chatColumns} from chat where chatbot_id = chat_counter.chatbot_id and chat.position = picked.position limit 1
) chat on true`;

/** The page beside its count, and how far the chatbot's chats went when they were counted. */
const beside = (counted: string, page: string, order: string): string => `
select known.*, counted.*, page.*
from (values (1)) one
left join chat_counter on chat_counter.chatbot_id = $1
cross join lateral (
  select coalesce(chat_counter.positions, 0) as reached, ${editionAt("chat_counter.positions")} as edition offset 0
) known
cross join lateral (${counted} offset 0) counted
left join lateral (${page}) page on true
order by ${order}`;

/**
 * A page of the chats that match the filters, in any order. A remembered count is counted on from. `atMost`
 * ends a count that gets dear: the total is then one more than it.
 */
export const filteredPage = (
  chatbot: number,
  query: ChatQuery,
  known: Count | undefined,
  {
    atMost = null,
    searching = plainly,
  }: { readonly atMost?: number | null; readonly searching?: Searching } = {},
): Statement => {
  const values: Array<unknown> = [chatbot, query.limit, offsetOf(query)];
  const parameter = (value: unknown) => `$${values.push(value)}`;
  const from =
    query.id === null
      ? searching.from
      : `(select * from chat where chatbot_id = $1 and id = ${parameter(query.id)}::int8 offset 0) found`;
  const conditions = conditionsOf(query, values, searching);
  const matching = conditions.join(" and ");
  const counted =
    known !== undefined
      ? countedOn(known, conditions, values, searching.from)
      : atMost === null
        ? `select count(*) as total from ${from} where ${matching}`
        : `select count(*) as total from (
    select from ${from} where ${matching} limit ${parameter(atMost + 1)}::int8
  ) counted`;
  const order = orderOf(query.orderBy, sortColumns);
  const page = `
select ${chatColumns}, position
from ${from} where ${matching}
order by ${order} limit $2::int8 offset $3::int8`;
  return { text: beside(counted, page, order), values };
};

/** How many of the newest chats are looked through for the newest that match. */
const recent = 20_000;

/**
 * How many chats match a search, and the newest of them. A common word's newest are among the newest chats, so
 * that its pass need but count; of any other word's matches all are gathered.
 */
export const countMatches = (
  chatbot: number,
  { search, userRef }: Pick<ChatQuery, "search" | "userRef">,
  searching: Searching,
): Statement => {
  const { from } = searching;
  const values: Array<unknown> = [chatbot, mostRemembered, recent];
  const [others, matches] = conditionsOf({ search, userRef }, values, searching);
  return {
    text: `
with recent as materialized (
  select position from (
    select position, folded_name from ${from} where ${others} order by position desc limit $3::int8
  ) newest where ${matches} limit $2::int8
), enough as materialized (
  select count(*) = $2::int8 as enough from recent
), matching as materialized (
  select position from ${from} where ${others} and ${matches} and not (select enough from enough)
)
select coalesce(chat_counter.positions, 0) as reached, ${editionAt("chat_counter.positions")} as edition,
  case when enough then (select count(*) from ${from} where ${others} and ${matches})
    else (select count(*) from matching) end as total,
  case when enough then array(select position from recent order by position desc)
    else array(select position from matching order by position desc limit $2::int8) end as newest,
  case when not enough then array(select position from matching order by position limit $2::int8) end as oldest
from enough left join chat_counter on chat_counter.chatbot_id = $1`,
    values,
  };
};

/** A page of the chats that match a search, in the order of positions and at any depth, by one pass. */
export const gatheredPage = (
  chatbot: number,
  query: ChatQuery,
  descending: boolean,
  searching: Searching,
): Statement => {
  const values: Array<unknown> = [chatbot, query.limit, offsetOf(query), mostRemembered];
  const matching = conditionsOf(query, values, searching).join(" and ");
  const direction = descending ? "desc" : "asc";
  const counted = `
select (select count(*) from matching) as total,
  array(select position from matching order by position desc limit $4::int8) as newest,
  array(select position from matching order by position limit $4::int8) as oldest`;
  return {
    text: `
with matching as materialized (select position from ${searching.from} where ${matching})
${beside(counted, pageOf("matching", direction), `position ${direction}`)}`,
    values,
  };
};

/** The same from the nearest chats only: there may be too few that match among them. */
export const walkedPage = (
  chatbot: number,
  query: ChatQuery,
  known: Count,
  descending: boolean,
  searching: Searching,
): Statement => {
  const { from } = searching;
  const values: Array<unknown> = [chatbot, query.limit, offsetOf(query), walk];
  const conditions = conditionsOf(query, values, searching);
  const [others, matches] = conditions;
  const counted = countedOn(known, conditions, values, from);
  const direction = descending ? "desc" : "asc";
  return {
    text: `
with met as materialized (
  select position from (
    select position, folded_name from ${from} where ${others} order by position ${direction} limit $4::int8
  ) nearest where ${matches} limit $2::int8 + $3::int8
)
${beside(counted, pageOf("met", direction), `position ${direction}`)}`,
    values,
  };
};

/** Whether {@link rememberedPage} can give the page: of those that came later it sees only so many, too. */
export const isRemembered = (query: ChatQuery, known: Count, descending: boolean): boolean => {
  const positions = positionsFrom(known, descending);
  const end = offsetOf(query) + query.limit;
  return (
    positions !== null &&
    end <= mostRemembered &&
    (positions.length === known.matching || end <= positions.length)
  );
};

/** A page of the newest that match, or of the oldest, from the remembered ones and those that came after them. */
export const rememberedPage = (
  chatbot: number,
  query: ChatQuery,
  known: Count,
  descending: boolean,
  searching: Searching,
): Statement => {
  const values: Array<unknown> = [
    chatbot,
    query.limit,
    offsetOf(query),
    array(positionsFrom(known, descending)!, "int8", (position) => position),
  ];
  const counted = countedOn(known, conditionsOf(query, values, searching), values, searching.from);
  const direction = descending ? "desc" : "asc";
  const positions = "unnest(counted.later || $4::int8[]) position";
  return {
    text: beside(counted, pageOf(positions, direction), `position ${direction}`),
    values,
  };
};
