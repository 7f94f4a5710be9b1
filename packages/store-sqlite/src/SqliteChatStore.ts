import {
  ChatId,
  type ChatbotNotFound,
  type ChatField,
  ChatNotFound,
  ChatStore,
  type CreateResult,
  type EntryField,
  fold,
  helloEntry,
  type ListQuery,
  IdempotencyKeyReused,
  idempotencyKeyLifetime,
} from "@parley/core/ports";
import type { Database, Values } from "./SqliteDatabase.ts";
import * as Rows from "./SqliteRows.ts";

type Query = ListQuery<ChatField | EntryField>;

/** Builds the ORDER BY list. SQLite compares strings by their UTF-8 bytes, which gives code point order. */
const orderBy = (order: Query["orderBy"]): string =>
  [...order, { field: "id", descending: order.at(-1)!.descending }]
    .map(({ descending, field }) => `${field} ${descending ? "DESC NULLS FIRST" : "NULLS LAST"}`)
    .join(", ");

export const makeChatStore = (database: Database): ChatStore["Service"] => {
  const { all, get, read, run, write } = database;

  const page = <Row, Item>(
    columns: string,
    toItem: (row: Row) => Item,
    query: Query,
    [from, ...filters]: readonly [string, ...ReadonlyArray<string>],
    values: Values,
  ) => {
    const conditions = query.id === null ? filters : [...filters, "id = :id"];
    const fromMatches = `FROM ${from} WHERE ${conditions.join(" AND ")}`;
    const parameters = {
      ...values,
      id: query.id,
      limit: query.limit,
      offset: Math.min((query.page - 1) * query.limit, Number.MAX_SAFE_INTEGER),
    };
    const order = orderBy(query.orderBy);
    const rows = `SELECT ${columns} ${fromMatches} ORDER BY ${order} LIMIT :limit OFFSET :offset`;
    const items = all<Row>(rows, parameters).map(toItem);
    const total = `SELECT count(*) AS total ${fromMatches}`;
    return { items, total: get<{ total: number }>(total, parameters)!.total };
  };

  const createChat: ChatStore["Service"]["createChat"] = (
    chatbot,
    { helloMessage, name, userRef },
    idempotencyKey,
  ) =>
    write((now): CreateResult | ChatbotNotFound | IdempotencyKeyReused => {
      const refusal = Rows.chatbotMissing(database, chatbot);
      if (refusal) return refusal;
      if (idempotencyKey !== null) {
        const values = { chatbot, ...idempotencyKey, now };
        const keyRecord = get<{ fingerprint: string; chat: number }>(
          `SELECT fingerprint, chat FROM results
           WHERE chatbot = :chatbot AND idempotencyKey = :key AND keepUntil > :now`,
          values,
        );
        const runningAsk = get(
          "SELECT 1 FROM turns WHERE chatbot = :chatbot AND idempotencyKey = :key AND heldUntil > :now",
          values,
        );
        if (runningAsk || (keyRecord && keyRecord.fingerprint !== idempotencyKey.fingerprint))
          return new IdempotencyKeyReused();
        if (keyRecord) {
          const row = get<Rows.ChatRow>(
            `SELECT ${Rows.chatColumns} FROM chats WHERE chatbot = :chatbot AND id = :chat`,
            { chatbot, chat: keyRecord.chat },
          );
          return { chat: Rows.toChat(row!), replayed: true };
        }
        Rows.endExpiredTurns(database, { ...values, chat: null });
      }
      const createTime = Rows.nextTime(database, chatbot, null, now);
      const id = ChatId.make(Rows.nextId(database, "chat"));
      const chat = Rows.insertChat(database, chatbot, { id, name, userRef, createTime });
      if (helloMessage !== null) {
        const { usage, ...hello } = helloEntry(helloMessage);
        const entry = { id: Rows.nextId(database, "entry"), chatId: id, ...hello, createTime };
        Rows.insertEntry(database, chatbot, entry, usage);
      }
      if (idempotencyKey !== null)
        run(
          `INSERT OR REPLACE INTO results (chatbot, idempotencyKey, fingerprint, keepUntil, chat)
           VALUES (:chatbot, :key, :fingerprint, :until, :id)`,
          { chatbot, ...idempotencyKey, until: now + idempotencyKeyLifetime, id },
        );
      return { chat, replayed: false };
    });

  const listChats: ChatStore["Service"]["listChats"] = (chatbot, query) =>
    read(() => {
      const search = fold(query.search ?? "");
      const conditions = ["chatbot = :chatbot"];
      if (query.userRef !== null) conditions.push("userRef = :userRef");
      if (search !== "") conditions.push("instr(fold(name), :search) > 0");
      const values = { chatbot, userRef: query.userRef, search };
      return page(Rows.chatColumns, Rows.toChat, query, ["chats", ...conditions], values);
    });

  const listEntries: ChatStore["Service"]["listEntries"] = (chatbot, chat, query, visitor) =>
    read(() => {
      if (!Rows.chatExists(database, chatbot, chat, visitor))
        return new ChatNotFound({ chatId: chat });
      const ofChat = ["entries", "chatbot = :chatbot", "chatId = :chat"] as const;
      return page(Rows.entryColumns, Rows.toEntry, query, ofChat, { chatbot, chat });
    });

  return ChatStore.of({ createChat, listChats, listEntries });
};
