/**
 * Lists. SQLite compares strings by their UTF-8 bytes, which gives code point order.
 */
import {
  type Chat,
  type ChatbotId,
  type ChatField,
  type ChatQuery,
  type Entry,
  type EntryField,
  fold,
  type ListQuery,
  type Lists,
  type Page,
} from "@parley/core/ports";
import {
  chatColumns,
  type ChatColumns,
  entryColumns,
  type EntryColumns,
  includedColumns,
  type Sql,
  toChat,
  toEntry,
  type Value,
} from "./SqliteTables.ts";

/**
 * Returns the terms of ORDER BY, such that an index serves the common orders. Times never decrease as ids increase, so
 * an order by time and then id is an order by id, and nothing needs to follow the id.
 */
const orderBy = (order: ListQuery<ChatField | EntryField>["orderBy"]): string => {
  const terms: Array<string> = [];
  for (const { descending, field } of [...order, { ...order.at(-1)!, field: "id" as const }]) {
    const direction = descending ? " DESC" : "";
    if (field === "lastEntryTime") {
      terms.push(`coalesce(lastEntryTime, createTime)${direction}`);
      continue;
    }
    const isLast = field === "id" || (field === "createTime" && order.at(-1)!.field === field);
    if (field === "name" || field === "userRef") terms.push(`${field} IS NULL${direction}`);
    terms.push(`${isLast ? "id" : field}${direction}`);
    if (isLast) break;
  }
  return terms.join(", ");
};

const readPage = <Row, Item>(
  { all }: Sql,
  columns: string,
  from: string,
  values: ReadonlyArray<Value>,
  { limit, orderBy: order, page }: Omit<ListQuery<ChatField | EntryField>, "id">,
  toItem: (row: Row) => Item,
): ReadonlyArray<Item> => {
  const offset = Math.min((page - 1) * limit, Number.MAX_SAFE_INTEGER);
  const statement = `SELECT ${columns} FROM ${from} ORDER BY ${orderBy(order)} LIMIT ? OFFSET ?`;
  return all<Row>(statement, [...values, limit, offset]).map(toItem);
};

const count = ({ all }: Sql, from: string, values: ReadonlyArray<Value>) =>
  all<{ total: number }>(`SELECT count(*) AS total FROM ${from}`, values)[0]!.total;

export const pageOfChats = (sql: Sql, chatbot: ChatbotId, query: ChatQuery): Page<Chat> => {
  const search = fold(query.search ?? "");
  const filters: ReadonlyArray<readonly [string, Value]> = [
    ["chatbot = ?", chatbot],
    ...(query.id === null ? [] : [["id = ?", query.id] as const]),
    ...(query.userRef === null ? [] : [["userRef = ?", query.userRef] as const]),
    ...(search === "" ? [] : [["instr(foldedName, ?) > 0", search] as const]),
  ];
  // Without statistics, SQLite may prefer to read all chats of the chatbot.
  const index = query.userRef !== null && query.id === null ? " INDEXED BY chatsOfUser" : "";
  const from = `chats${index} WHERE ${filters.map(([condition]) => condition).join(" AND ")}`;
  const values = filters.map(([, value]) => value);
  const activity = ", entries, coalesce(lastEntryTime, createTime) AS lastActivity";
  const columns = chatColumns + (query.include.includes("activity") ? activity : "");
  const items = readPage<ChatColumns, Chat>(sql, columns, from, values, query, toChat);
  const counter = "SELECT chats AS total FROM chatbots WHERE id = ?";
  const total =
    filters.length > 1
      ? count(sql, from, values)
      : (sql.all<{ total: number }>(counter, [chatbot])[0]?.total ?? 0);
  return { items, total };
};

export const pageOfEntries = (
  sql: Sql,
  ...[chatbot, chat, { after, id, include, ...query }, visitor]: Parameters<Lists["entryPage"]>
): Page<Entry> | null => {
  const exists = sql.all(
    "SELECT 1 FROM chats WHERE chatbot = ?1 AND id = ?2 AND (?3 IS NULL OR userRef = ?3)",
    [chatbot, chat, visitor],
  );
  if (exists.length === 0) return null;
  const filters: ReadonlyArray<readonly [string, Value]> = [
    ["chatbot = ?", chatbot],
    ["chatId = ?", chat],
    ...(id === null ? [] : [["id = ?", id] as const]),
    ...(after === null ? [] : [["id > ?", after] as const]),
  ];
  const from = `entries WHERE ${filters.map(([condition]) => condition).join(" AND ")}`;
  const values = filters.map(([, value]) => value);
  const columns = [entryColumns, ...include.map((name) => includedColumns[name])].join();
  const items = readPage<EntryColumns, Entry>(sql, columns, from, values, query, toEntry);
  return { items, total: count(sql, from, values) };
};
