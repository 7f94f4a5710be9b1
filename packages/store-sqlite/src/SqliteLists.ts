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
  type Overloaded,
  type Page,
  type StorageUnavailable,
} from "@parley/core/ports";
import { Effect } from "effect";
import {
  chatColumns,
  type ChatColumns,
  entryColumns,
  type EntryColumns,
  includedColumns,
  type Query,
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

/** How many rows a page may skip, or a chat may have to be sorted, before that is done in the background. */
const manyRows = 2_000;

type Values = ReadonlyArray<Value>;

/** Returns the query for the rows of a page. */
const pageQuery = (
  columns: string,
  from: string,
  values: Values,
  { limit, orderBy: order, page }: Omit<ListQuery<ChatField | EntryField>, "id">,
): Query => {
  const offset = Math.min((page - 1) * limit, Number.MAX_SAFE_INTEGER);
  const text = `SELECT ${columns} FROM ${from} ORDER BY ${orderBy(order)} LIMIT ? OFFSET ?`;
  return [text, [...values, limit, offset]];
};

/** Reads a page and its total: at once, or in the background if that may take long. */
const readPage = <Row, Item>(
  sql: Sql,
  isSlow: boolean,
  page: Query,
  total: Query,
  toItem: (row: Row) => Item,
): PageEffect<Item> => {
  const toPage = (rows: ReadonlyArray<unknown>, [row]: ReadonlyArray<unknown>) => ({
    items: rows.map((each) => toItem(each as Row)),
    total: (row as { readonly total: number } | undefined)?.total ?? 0,
  });
  return isSlow
    ? Effect.map(sql.background.read([page, total]), ([rows, totals]) => toPage(rows!, totals!))
    : Effect.succeed(sql.onSnapshot(() => toPage(sql.all(...page), sql.all(...total))));
};

type PageEffect<Item> = Effect.Effect<Page<Item>, StorageUnavailable | Overloaded>;

export const pageOfChats = (sql: Sql, chatbot: ChatbotId, query: ChatQuery): PageEffect<Chat> => {
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
  const [{ field }] = query.orderBy;
  const isByIndex =
    ["id", "createTime"].includes(field) || (field === "name" && query.orderBy.length === 1);
  const isSlow =
    query.id === null &&
    (search !== "" || query.page * query.limit > manyRows || (index === "" && !isByIndex));
  return readPage<ChatColumns, Chat>(
    sql,
    isSlow,
    pageQuery(columns, from, values, query),
    filters.length > 1
      ? [`SELECT count(*) AS total FROM ${from}`, values]
      : ["SELECT chats AS total FROM chatbots WHERE id = ?", values],
    toChat,
  );
};

export const pageOfEntries = (
  sql: Sql,
  ...[chatbot, chat, { after, id, include, ...query }, visitor]: Parameters<Lists["entryPage"]>
): Effect.Effect<Page<Entry> | null, StorageUnavailable | Overloaded> => {
  const [row] = sql.all<{ entries: number }>(
    "SELECT entries FROM chats WHERE chatbot = ?1 AND id = ?2 AND (?3 IS NULL OR userRef = ?3)",
    [chatbot, chat, visitor],
  );
  if (row === undefined) return Effect.succeed(null);
  const filters: ReadonlyArray<readonly [string, Value]> = [
    ["chatbot = ?", chatbot],
    ["chatId = ?", chat],
    ...(id === null ? [] : [["id = ?", id] as const]),
    ...(after === null ? [] : [["id > ?", after] as const]),
  ];
  const from = `entries WHERE ${filters.map(([condition]) => condition).join(" AND ")}`;
  const values = filters.map(([, value]) => value);
  const columns = [entryColumns, ...include.map((name) => includedColumns[name])].join();
  const [{ field }] = query.orderBy;
  const isByIndex = ["id", "createTime"].includes(field) && query.page * query.limit <= manyRows;
  return readPage<EntryColumns, Entry>(
    sql,
    row.entries > manyRows && id === null && (!isByIndex || after !== null),
    pageQuery(columns, from, values, query),
    filters.length > 2
      ? [`SELECT count(*) AS total FROM ${from}`, values]
      : ["SELECT entries AS total FROM chats WHERE chatbot = ? AND id = ?", values],
    toEntry,
  );
};
