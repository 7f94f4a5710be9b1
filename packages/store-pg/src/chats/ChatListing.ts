/**
 * Lists a chatbot's chats in pages. A single statement reads a page and the total, so that both come from one snapshot:
 *
 * | query                                | statement          | session                                           |
 * | ------------------------------------ | ------------------ | ------------------------------------------------- |
 * | all chats, in order of position      | {@link byPosition} | `reads`                                           |
 * | all chats, by name or user reference | {@link byText}     | `bulk`                                            |
 * | the chat with an id                  | {@link byFilter}   | `reads`                                           |
 * | a user's chats, in order of position | {@link byFilter}   | `reads` up to {@link quickReadLimit}, else `bulk` |
 * | a user's chats, by their last entry  | {@link byFilter}   | `reads` up to {@link quickSortLimit}, else `bulk` |
 * | any other query                      | {@link byFilter}   | `bulk`                                            |
 *
 * {@link positionDirection} and {@link textOrder} recognize these orders. The SQL consists of constant pieces; every
 * value from a client is passed as a parameter.
 */
import {
  CurrentKey,
  fold,
  type Chat,
  type ChatQuery,
  type ChatStore,
  type OrderBy,
} from "@parley/core/ports";
import { Effect } from "effect";
import {
  databaseOverload,
  isLockTimeout,
  isStatementTimeout,
  toStorageUnavailable,
} from "../connections/PgErrors.ts";
import { deadlines, withDeadline } from "../connections/Deadlines.ts";
import type { PgPools } from "../connections/PgPools.ts";
import type { Statement } from "../connections/Session.ts";
import { chatColumnsOf, toChat } from "../rows/ChatRows.ts";
import { positionOf } from "./ChatPositions.ts";

/**
 * Runs a statement whose cost is bounded. If it gets no connection in time, it fails with `StorageUnavailable` rather
 * than `Overloaded`: quick reads release their connections at once, so a long wait means that the database is barely
 * responding.
 */
export const readQuickly = <Row extends object>(
  { reads }: PgPools,
  chatbot: number,
  { text, values }: Statement,
) => toStorageUnavailable(reads.query<Row>(chatbot, text, values));

/**
 * Runs any other statement. Only a few run at a time, in turn by API key, and after ten seconds the list fails with
 * `Overloaded`.
 */
export const readInBulk = <Row extends object>(
  { bulk }: PgPools,
  chatbot: number,
  { text, values }: Statement,
) =>
  Effect.flatMap(CurrentKey, (key) => bulk.query<Row>(key ?? chatbot, text, values)).pipe(
    Effect.catchIf(
      (error) => isStatementTimeout(error) || isLockTimeout(error),
      () => Effect.fail(databaseOverload("slow_list")),
    ),
    toStorageUnavailable,
  );

/** Returns the offset of a page, at most 2^53 - 1: no list has that many rows. */
export const offsetOf = ({ limit, page }: { readonly limit: number; readonly page: number }) =>
  Math.min((page - 1) * limit, Number.MAX_SAFE_INTEGER);

/**
 * Returns the direction of an order that is equivalent to the order of positions: by id, whatever follows; or by
 * creation time, alone or followed by id in the same direction. Returns `undefined` for any other order.
 */
export const positionDirection = (
  orderBy: readonly [OrderBy<string>, ...Array<OrderBy<string>>],
): "asc" | "desc" | undefined => {
  const [{ descending, field }, ...rest] = orderBy;
  return field === "id" || (field === "createTime" && leavesPositionOrder(rest, descending))
    ? directionOf(descending)
    : undefined;
};

/** Whether rows that tie in the preceding fields are in position order when sorted by these. */
const leavesPositionOrder = (
  fields: ReadonlyArray<OrderBy<string>>,
  descending: boolean,
): boolean =>
  fields.every(
    (next) =>
      (next.field === "id" || next.field === "createTime") && next.descending === descending,
  );

/**
 * Returns the sort expressions of an ORDER BY over a relation's columns. PostgreSQL puts nulls last in ascending order
 * and first in descending order, as the contract requires.
 */
export const orderOf = <Field extends string>(
  relation: string,
  orderBy: ReadonlyArray<OrderBy<NoInfer<Field>>>,
  columns: Readonly<Record<Field, string>> & { readonly id: string },
): string =>
  [...orderBy, { field: "id" as const, descending: orderBy.at(-1)!.descending }]
    .map(({ descending, field }) => {
      // An expression has `$` in place of the relation.
      const column = columns[field].includes("$") ? columns[field] : `$.${columns[field]}`;
      return `${column.replaceAll("$", relation)} ${directionOf(descending)}`;
    })
    .join(", ");

const directionOf = (descending: boolean) => (descending ? "desc" : "asc");

/** The maximum number of a user's chats that a list on `reads` counts or skips. */
export const quickReadLimit = 10_000;

/** The maximum number of a user's chats that a list on `reads` sorts by the time of their last entry. */
const quickSortLimit = 1_000;

export const makeListChats = (pools: PgPools): ChatStore["Service"]["listChats"] => {
  const read = (chatbot: number, query: ChatQuery) => {
    const quickly = (statement: Statement) => readQuickly<Row>(pools, chatbot, statement);
    const inBulk = (statement: Statement) => readInBulk<Row>(pools, chatbot, statement);
    const direction = positionDirection(query.orderBy);
    const orderByText = textOrder(query.orderBy);
    const isAll = query.id === null && query.userRef === null && !isSearch(query);
    if (isAll && direction !== undefined) return quickly(byPosition(chatbot, query, direction));
    if (isAll && orderByText !== undefined) return inBulk(byText(chatbot, query, orderByText));
    const fullStatement = byFilter(chatbot, query);
    if (query.id !== null) return quickly(fullStatement);
    const limit = direction === undefined ? quickSortLimit : quickReadLimit;
    const isQuick = direction !== undefined || query.orderBy[0].field === "lastEntryTime";
    if (isSearch(query) || query.userRef === null || !isQuick || offsetOf(query) > limit) {
      return inBulk(fullStatement);
    }
    return Effect.flatMap(quickly(byFilter(chatbot, query, limit + 1)), (rows) =>
      rows[0]!.total! > limit ? inBulk(fullStatement) : Effect.succeed(rows),
    ).pipe(withDeadline(deadlines.bulk));
  };
  return (chatbot, query) =>
    Effect.map(read(chatbot, query), (rows) => ({
      total: rows[0]!.total ?? 0,
      items: rows.flatMap((row): Chat | [] => (row.id === null ? [] : toChat(row))),
    }));
};

/** An empty page yields one row of nulls with the total, which may be null if the chatbot has never had a chat. */
type Row = { readonly total: number | null } & (Chat | { readonly id: null });

/**
 * Matches texts for which the trigram index helps: three consecutive letters or digits, or fewer at the edge of a word.
 * For any other text, PostgreSQL may read the whole index, which takes ten seconds with ten million chats; reading the
 * table takes two.
 */
const indexableText =
  /[\p{Alphabetic}\p{Nd}]{3}|[^\p{Alphabetic}\p{Nd}][\p{Alphabetic}\p{Nd}]|[\p{Alphabetic}\p{Nd}]{2}[^\p{Alphabetic}\p{Nd}]/u;

/** An empty search filters nothing. */
const isSearch = (query: ChatQuery): query is ChatQuery & { readonly search: string } =>
  query.search !== null && query.search !== "";

const sortColumns = {
  id: "position",
  name: "name",
  userRef: "user_ref",
  createTime: "create_time",
  lastEntryTime: "coalesce($.last_entry_time, $.create_time)",
} as const;

/** How to find a page's first row, and the rows that follow it. Built once, because that takes 9 us. */
const seeks = {
  asc: { rank: "$2::int8 + 1", position: positionOf("$2::int8 + 1"), compare: ">=" },
  desc: { rank: "chats - $2::int8", position: positionOf("chats - $2::int8"), compare: "<=" },
} as const;

/**
 * Lists all chats in order of position, by a seek: the position of the page's first row is found from its rank. If a
 * chatbot has as many chats as positions, no chat has been erased, and the rank is the position.
 */
export const byPosition = (
  chatbot: number,
  query: ChatQuery,
  direction: "asc" | "desc",
): Statement => {
  const { compare, position, rank } = seeks[direction];
  return {
    text: `
select counter.chats::float8 as total, ${chatColumnsOf("page", query)}
from (values (1)) always
left join chat_counter counter on counter.chatbot_id = $1
left join lateral (
  select case when chats = positions then ${rank} else (${position}) end as position
) first on true
left join lateral (
  select * from chat
  where chatbot_id = $1 and position ${compare} first.position
  order by position ${direction} limit $3::int8
) page on true
order by page.position ${direction}`,
    values: [chatbot, offsetOf(query), query.limit],
  };
};

type TextOrder = OrderBy<"name" | "userRef">;

/** Returns the text field whose index provides an order; id or time, in the same direction, may follow the field. */
const textOrder = ([first, ...rest]: ChatQuery["orderBy"]): TextOrder | undefined => {
  const { descending, field } = first;
  if (field !== "name" && field !== "userRef") return undefined;
  return leavesPositionOrder(rest, descending) ? { field, descending } : undefined;
};

/**
 * Lists all chats in order of a text field, scanning its index from the nearer end. `chatbot_id` is compared with the
 * counter's row, not `$1`: given a parameter, the planner would expect one chat in a chatbot that ANALYZE has not seen.
 */
export const byText = (
  chatbot: number,
  query: ChatQuery,
  { descending, field }: TextOrder,
): Statement => {
  const orderIn = (relation: string, isReverse = false) =>
    orderOf(relation, [{ field, descending: descending !== isReverse }], sortColumns);
  return {
    text: `
select counter.chats::float8 as total, ${chatColumnsOf("page", query)}
from (values (1)) always
left join chat_counter counter on counter.chatbot_id = $1
left join lateral (
  (select position from chat where chatbot_id = counter.chatbot_id and $2::int8 <= chats / 2
    order by ${orderIn("chat")} offset $2::int8 limit $3::int8)
  union all
  (select position from chat where chatbot_id = counter.chatbot_id and $2::int8 > chats / 2
    order by ${orderIn("chat", true)} offset greatest(chats - $2::int8 - $3::int8, 0)
    limit greatest(least(chats - $2::int8, $3::int8), 0))
  limit $3::int8
) ranked on true
left join lateral (
  select * from chat where chatbot_id = counter.chatbot_id and position = ranked.position limit 1
) page on true
order by ${orderIn("page")}`,
    values: [chatbot, offsetOf(query), query.limit],
  };
};

/** Lists the chats that match the filters, in the query's order; counts at most `atMost` of them. */
export const byFilter = (chatbot: number, query: ChatQuery, atMost?: number): Statement => {
  const values: Array<unknown> = [chatbot, query.limit, offsetOf(query)];
  const parameter = (value: unknown) => `$${values.push(value)}`;
  // The chat with the id is looked up first (`offset 0`); otherwise, the planner may scan an index in the page's order.
  const from =
    query.id !== null
      ? `(select * from chat where chatbot_id = $1 and id = ${parameter(query.id)}::int8 offset 0)`
      : "chat";
  const conditions = ["chatbot_id = $1"];
  if (query.userRef !== null) conditions.push(`user_ref = ${parameter(query.userRef)}`);
  if (isSearch(query)) {
    const foldedSearch = fold(query.search);
    conditions.push(
      indexableText.test(foldedSearch)
        ? `folded_name like ${parameter(`%${foldedSearch.replace(/[\\%_]/g, "\\$&")}%`)}`
        : `strpos(folded_name, ${parameter(foldedSearch)}) > 0`,
    );
  }
  const matchClause = `from ${from} candidate where ${conditions.join(" and ")}`;
  const countSource =
    atMost === undefined
      ? matchClause
      : `from (select ${matchClause} limit ${parameter(atMost)}::int8) match`;
  // The page's condition on the total saves another scan if the total shows that the page is empty.
  return {
    text: `
select row_count.total::float8 as total, ${chatColumnsOf("page", query)}
from (select count(*) as total ${countSource}) row_count
left join lateral (
  select * ${matchClause} and row_count.total > $3::int8
  order by ${orderOf("candidate", query.orderBy, sortColumns)} limit $2::int8 offset $3::int8
) page on true
order by ${orderOf("page", query.orderBy, sortColumns)}`,
    values,
  };
};
