/**
 * Creates chats, and lists chats and entries by filtering and sorting arrays.
 */
import {
  ChatNotFound,
  ChatStore,
  compareText,
  fold,
  helloEntry,
  IdempotencyKeyReused,
  type ListQuery,
  type Page,
} from "@parley/core/ports";
import { Effect, Result } from "effect";
import { findRecord, putRecord } from "./IdempotencyRecords.ts";
import {
  addChat,
  addEntry,
  atomically,
  findChatbot,
  isOwn,
  tenantOf,
  type Memory,
} from "./Memory.ts";

type Port = ChatStore["Service"];

export const makeChatStore = (memory: Memory): Port => {
  const createChat: Port["createChat"] = (chatbot, { helloMessage, ...chat }, idempotencyKey) =>
    atomically(function* (now) {
      const tenant = yield* findChatbot(memory, chatbot);
      const record = findRecord(tenant, idempotencyKey, now);
      if (record !== undefined) {
        const { fingerprint, outcome } = record;
        if (fingerprint !== idempotencyKey!.fingerprint || outcome._tag !== "Chat") {
          return yield* Result.fail(new IdempotencyKeyReused());
        }
        return { chat: tenant.chats.get(outcome.chat)!.chat, replayed: true };
      }
      const storedChat = addChat(memory, tenant, chat, now);
      if (helloMessage !== null) addEntry(memory, storedChat, helloEntry(helloMessage), now);
      putRecord(tenant, idempotencyKey, now, { _tag: "Chat", chat: storedChat.chat.id });
      return { chat: storedChat.chat, replayed: false };
    });

  const listChats: Port["listChats"] = (chatbot, query) =>
    Effect.sync(() => {
      const { id, userRef } = query;
      const search = fold(query.search ?? "");
      const matches = [...tenantOf(memory, chatbot).chats.values()].filter(
        ({ chat }) =>
          (id === null || chat.id === id) &&
          (userRef === null || chat.userRef === userRef) &&
          (search === "" || (chat.name !== null && fold(chat.name).includes(search))),
      );
      const chats = matches.map(({ chat }) => chat);
      return pageOf(chats, query);
    });

  const listEntries: Port["listEntries"] = (chatbot, chatId, { id, ...query }, visitor = null) =>
    Effect.suspend(() => {
      const storedChat = tenantOf(memory, chatbot).chats.get(chatId);
      if (storedChat === undefined || !isOwn(storedChat, visitor))
        return Effect.fail(new ChatNotFound({ chatId }));
      const entries = storedChat.entries.map(({ entry }) => entry);
      const matches = id === null ? entries : entries.filter((entry) => entry.id === id);
      return Effect.succeed(pageOf(matches, query));
    });

  return { createChat, listChats, listEntries };
};

type Value = string | number | boolean | Date | null;

/** Returns one page of the rows, all of which match the query and are in ascending order of id. */
const pageOf = <Row extends Record<Field | "id", Value>, Field extends string>(
  rows: ReadonlyArray<Row>,
  { limit, orderBy, page }: Omit<ListQuery<Field>, "id">,
): Page<Row> => {
  const order = [...orderBy, { field: "id" as const, descending: orderBy.at(-1)!.descending }];
  const byOrder = (a: Row, b: Row): number => {
    for (const { field, descending } of order) {
      const ascending = compare(a[field], b[field]);
      if (ascending !== 0) return descending ? -ascending : ascending;
    }
    return 0;
  };
  const [{ descending, field }] = orderBy;
  const isById = field === "id";
  const sortedRows = isById ? (descending ? rows.toReversed() : rows) : rows.toSorted(byOrder);
  return { total: rows.length, items: sortedRows.slice((page - 1) * limit, page * limit) };
};

/** Compares two values: `null` comes last, `true` comes after `false`, and strings are in code point order. */
const compare = (a: Value, b: Value): number => {
  if (a === null || b === null) return a === b ? 0 : a === null ? 1 : -1;
  if (typeof a === "string") return compareText(a, b as string);
  return Number(a) - Number(b);
};
