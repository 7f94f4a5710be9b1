/**
 * Which rows a list, an erasure and a feedback report are about, for stores that decide about rows in memory.
 */
import type { Chat } from "../model/Chat.ts";
import type { ChatQuery, ListQuery, Page } from "../model/ListQuery.ts";
import type { Entry } from "../model/Entry.ts";
import { visitorOf } from "../model/IdempotencyKey.ts";
import { compareText, fold } from "../model/Text.ts";
import type { DatedErasure, FeedbackKind } from "../ports/ChatArchive.ts";
import type { ChatRow, KeyRow } from "./Rows.ts";

/** Whether a chat matches the filters of a query. */
export const matchesQuery = (chat: Chat, { id, search, userRef }: ChatQuery): boolean =>
  (id === null || chat.id === id) &&
  (userRef === null || chat.userRef === userRef) &&
  (!search || (chat.name !== null && fold(chat.name).includes(fold(search))));

type Value = string | number | boolean | Date | null | undefined;

/** Returns one page of the rows, all of which match the query. */
export const pageOf = <Row extends { readonly id: number }, Field extends keyof Row & string>(
  rows: ReadonlyArray<Row>,
  { limit, orderBy, page }: Omit<ListQuery<Field>, "id">,
): Page<Row> => {
  const order = [...orderBy, { field: "id" as const, descending: orderBy.at(-1)!.descending }];
  const sortedRows = rows.toSorted((a, b) =>
    order.reduce((sign, { descending, field }) => {
      const [left, right] = descending ? [b, a] : [a, b];
      return sign || compare(left[field] as Value, right[field] as Value);
    }, 0),
  );
  return { total: rows.length, items: sortedRows.slice((page - 1) * limit, page * limit) };
};

/** Compares two values: `null` comes last, `true` comes after `false`, and strings are in code point order. */
const compare = (a: Value, b: Value): number =>
  Number(a == null) - Number(b == null) ||
  (typeof a === "string" ? compareText(a, b as string) : Number(a) - Number(b));

/** Whether an erasure erases a chat. */
export const erasesChat = (
  which: DatedErasure,
  { chat, lastEntryTime }: Pick<ChatRow, "chat" | "lastEntryTime">,
): boolean => {
  switch (which._tag) {
    case "Chat":
      return chat.id === which.id;
    case "UserRef":
      return chat.userRef === which.userRef;
    case "IdleSince":
      return (lastEntryTime ?? chat.createTime) < which.limit;
    case "All":
      return true;
  }
};

/** Whether an erasure deletes a key without a chat. Only visitors' keys, which contain a `userRef`, qualify. */
export const erasesKey = (
  which: DatedErasure,
  key: string,
  { turnUntil }: Pick<KeyRow, "turnUntil">,
): boolean => {
  const visitor = visitorOf(key);
  if (visitor === undefined) return false;
  switch (which._tag) {
    case "Chat":
      return false;
    case "UserRef":
      return visitor === which.userRef;
    case "IdleSince":
      return (turnUntil ?? 0) < which.limit.getTime();
    case "All":
      return true;
  }
};

/** Whether an entry is part of the feedback of this kind. */
export const hasFeedback = (
  { createTime, metadata, rating }: Entry,
  since: Date,
  kind: FeedbackKind,
): boolean =>
  createTime >= since && (kind === "rated" ? rating != null : metadata?.["found"] === false);
