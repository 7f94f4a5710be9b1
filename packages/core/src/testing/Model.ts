/**
 * The lists of the contract over plain arrays, written to be obviously right.
 */
import type { Chat } from "../Chat.ts";
import type { Entry } from "../Entry.ts";
import { fold } from "../Fold.ts";
import type { ChatField, ChatQuery, EntryField, EntryQuery, OrderBy, Page } from "../ListQuery.ts";

type Value = string | number | boolean | Date | null;

/** The page of `chats`, all chats of one chatbot, that the query asks for. */
export const chatPage = (chats: ReadonlyArray<Chat>, query: ChatQuery): Page<Chat> =>
  pageOf(
    chats
      .filter(({ id }) => query.id === null || id === query.id)
      .filter(({ userRef }) => query.userRef === null || userRef === query.userRef)
      .filter(
        ({ name }) =>
          query.search === null ||
          query.search === "" ||
          (name !== null && fold(name).includes(fold(query.search))),
      ),
    query,
    (chat, field: ChatField): Value => (field === "_createTime" ? chat.createTime : chat[field]),
  );

/** The page of `entries`, all entries of one chat, that the query asks for. */
export const entryPage = (entries: ReadonlyArray<Entry>, query: EntryQuery): Page<Entry> =>
  pageOf(
    entries.filter(({ id }) => query.id === null || id === query.id),
    query,
    (entry, field: EntryField): Value => {
      if (field === "_createTime") return entry.createTime;
      return field === "chat_id" ? entry.chatId : entry[field];
    },
  );

const pageOf = <Row extends { readonly id: number }, Field extends string>(
  rows: ReadonlyArray<Row>,
  query: {
    readonly limit: number;
    readonly page: number;
    readonly orderBy: ReadonlyArray<OrderBy<Field>>;
  },
  read: (row: Row, field: Field) => Value,
): Page<Row> => {
  const sorted = rows.toSorted((a, b) => {
    for (const { descending, field } of query.orderBy) {
      const ascending = compare(read(a, field), read(b, field));
      if (ascending !== 0) return descending ? -ascending : ascending;
    }
    return query.orderBy.at(-1)!.descending ? b.id - a.id : a.id - b.id;
  });
  const start = (query.page - 1) * query.limit;
  return { total: rows.length, items: sorted.slice(start, start + query.limit) };
};

const compare = (a: Value, b: Value): number => {
  if (a === null || b === null) return a === b ? 0 : a === null ? 1 : -1;
  if (typeof a !== "string") return Number(a) - Number(b);
  const right = codePoints(b as string);
  for (const point of codePoints(a)) {
    const other = right.next();
    if (other.done === true) return 1;
    if (point !== other.value) return point - other.value;
  }
  return right.next().done === true ? 0 : -1;
};

function* codePoints(text: string): Generator<number, void> {
  for (const point of text) yield point.codePointAt(0)!;
}
