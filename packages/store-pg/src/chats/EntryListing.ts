/**
 * Lists a chat's entries in pages. A single statement reads a page and the total, so that both come from one snapshot.
 * It returns no rows if the chat does not exist.
 */
import {
  type ChatbotId,
  type ChatId,
  ChatNotFound,
  type ChatStore,
  type EntryField,
  type EntryQuery,
} from "@parley/core/ports";
import { Effect } from "effect";
import type { PgPools } from "../connections/PgPools.ts";
import type { Statement } from "../connections/Session.ts";
import { entryColumns, toEntry, type StoredEntry } from "../rows/ChatRows.ts";
import { byPrimaryKey } from "../rows/Statements.ts";
import { offsetOf, orderOf, positionDirection, readInBulk, readQuickly } from "./ChatListing.ts";

/** An empty page yields one row of nulls with the total. */
type Row = { readonly total: number } & (StoredEntry | { readonly id: null });

export const makeListEntries =
  (pools: PgPools): ChatStore["Service"]["listEntries"] =>
  (chatbot, chatId, query, visitor = null) => {
    const isQuick = query.id !== null || positionDirection(query.orderBy) !== undefined;
    const read = isQuick ? readQuickly : readInBulk;
    return Effect.flatMap(
      read<Row>(pools, chatbot, entryPage(chatbot, chatId, query, visitor)),
      (rows) => {
        const [firstRow] = rows;
        if (firstRow === undefined) return Effect.fail(new ChatNotFound({ chatId }));
        return Effect.succeed({
          total: firstRow.total,
          items: rows.flatMap((row) => (row.id === null ? [] : toEntry(row))),
        });
      },
    );
  };

const sortColumns: Readonly<Record<EntryField, string>> = {
  id: "position",
  chatId: "chat_id",
  question: "question",
  answer: "answer",
  moderation: "moderation",
  flagged: "flagged",
  createTime: "create_time",
};

/**
 * Returns SQL for the position of the last entry with at most this id, which is usually that of the last entry that the
 * client has seen; 0 if there is none. Ids and positions have the same order.
 */
const lastUpTo = (id: string) => `coalesce(
    (select position from entry ${byPrimaryKey("id", id, "chat_id = $2::int8")}),
    case when exists (select from entry where chatbot_id = $1 and chat_id = $2::int8 and position = 1 and id > ${id}) then 0 end,
    (select position from entry where chatbot_id = $1 and chat_id = $2::int8 and id <= ${id} order by position desc limit 1),
    0)`;

/** Reads the entry with the query's id, or a page of all entries, with a seek if the page is in order of position. */
export const entryPage = (
  chatbot: ChatbotId,
  chatId: ChatId,
  query: EntryQuery,
  visitor: string | null = null,
): Statement => {
  const direction = query.id === null ? positionDirection(query.orderBy) : undefined;
  const orderIn = (relation: string) =>
    direction === undefined
      ? orderOf(relation, query.orderBy, sortColumns)
      : `${relation}.position ${direction}`;
  // An erasure deletes whole chats, so the positions of a chat's entries have no gaps.
  const seek = {
    asc: "position > seen.last + $4::int8",
    desc: "position <= chat.entries - $4::int8",
  };
  const [condition, offset] =
    direction === undefined ? ["true", "offset $4::int8"] : [seek[direction], ""];
  const values: Array<unknown> = [chatbot, chatId, query.limit, offsetOf(query)];
  const parameter = (value: unknown) => `$${values.push(value)}`;
  const from =
    query.id === null
      ? "entry"
      : `(select * from entry where chatbot_id = $1 and id = ${parameter(query.id)}::int8 offset 0)`;
  const lastSeen = query.after === null ? "0" : lastUpTo(`${parameter(query.after)}::int8`);
  const ownership = visitor === null ? "" : ` and chat.user_ref = ${parameter(visitor)}`;
  const matchClause = `from ${from} candidate where chatbot_id = $1 and chat_id = $2::int8 and position > seen.last and ${condition}`;
  return {
    text: `
select (${query.id === null ? "chat.entries - seen.last" : `select count(*) ${matchClause}`})::float8 as total,
  ${entryColumns("page", query.include)}
from chat cross join lateral (select ${lastSeen} as last) seen left join lateral (
  select * ${matchClause}
  order by ${orderIn("candidate")} limit $3::int8 ${offset}
) page on true
where chat.chatbot_id = $1 and chat.id = $2::int8${ownership}
order by ${orderIn("page")}`,
    values,
  };
};
