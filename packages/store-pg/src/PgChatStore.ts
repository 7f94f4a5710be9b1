import {
  ChatNotFound,
  ChatStore,
  fold,
  helloEntry,
  RetryKeyReused,
  type Chat,
  type ChatField,
  type ChatToCreate,
  type Created,
  type EntryField,
  type ListQuery,
  type RetryKey,
} from "@parley/core";
import { Effect } from "effect";
import { SqlClient } from "effect/sql";
import { gather } from "./Gather.ts";
import { insertChats, type InsertedChat } from "./InsertChats.ts";
import { positionOf } from "./Holes.ts";
import { chatColumns, chatOf, entryColumns, entryOf, type ChatRow, type EntryRow } from "./Rows.ts";
import { orUnavailable } from "./Storage.ts";

export const makeChatStore = Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient;

  const insert = yield* gather(
    (chatbot, chats: ReadonlyArray<ChatToCreate>) =>
      orUnavailable(insertChats(sql, chatbot, chats.map(toInsert))),
    { writers: 2, most: 500 },
  );

  const createOnce = (chatbot: number, chat: ChatToCreate, retryKey: RetryKey) =>
    sql.withTransaction(
      Effect.gen(function* () {
        const claimed = yield* sql.unsafe(claimKey, [chatbot, retryKey.key, retryKey.fingerprint]);
        if (claimed.length === 0) return yield* replay(chatbot, retryKey);
        const [made] = yield* insertChats(sql, chatbot, [toInsert(chat)]);
        yield* sql.unsafe(settleKey, [chatbot, retryKey.key, made!.id]);
        return { chat: created(chat, made!), replayed: false };
      }),
    );

  const replay = Effect.fnUntraced(function* (chatbot: number, { fingerprint, key }: RetryKey) {
    const [row] = yield* sql.unsafe<ChatRow & { readonly fingerprint: string }>(knownChat, [
      chatbot,
      key,
    ]);
    if (row === undefined || row.fingerprint !== fingerprint || row.id === null) {
      return yield* new RetryKeyReused({ key });
    }
    return { chat: chatOf(row), replayed: true };
  });

  return ChatStore.of({
    createChat: (chatbot, chat, retryKey) =>
      retryKey === null
        ? Effect.map(insert(chatbot, chat), (made): Created => ({
            chat: created(chat, made),
            replayed: false,
          }))
        : orUnavailable(createOnce(chatbot, chat, retryKey)),

    listChats: (chatbot, query) => {
      const { id, limit, search, userRef } = query;
      const seek = seekable(query);
      if (seek !== undefined && id === null && userRef === null && search === null) {
        return sql
          .unsafe<ChatPageRow>(seek ? newestChatsPage : oldestChatsPage, [
            chatbot,
            offsetOf(query),
            limit,
          ])
          .pipe(Effect.map(chatPage), orUnavailable);
      }
      const values: Array<unknown> = [chatbot];
      const where = ["chatbot_id = $1"];
      const filter = (condition: (parameter: string) => string, value: unknown) => {
        values.push(value);
        where.push(condition(`$${values.length}`));
      };
      if (id !== null) filter((p) => `id = ${p}::int8`, id);
      if (userRef !== null) filter((p) => `user_ref = ${p}`, userRef);
      if (search !== null && search !== "") {
        filter((p) => `folded_name like ${p}`, `%${fold(search).replace(/[\\%_]/g, "\\$&")}%`);
      }
      const page = sorted("chat", chatColumns, where, values.length, orderOf(query, chatColumn));
      return sql
        .unsafe<ChatPageRow>(page, [...values, limit, offsetOf(query)])
        .pipe(Effect.map(chatPage), orUnavailable);
    },

    listEntries: (chatbot, chatId, query) => {
      const { id, limit } = query;
      const seek = seekable(query);
      const rows =
        seek !== undefined && id === null
          ? sql.unsafe<EntryPageRow>(seek ? newestEntriesPage : oldestEntriesPage, [
              chatbot,
              chatId,
              offsetOf(query),
              limit,
            ])
          : sql.unsafe<EntryPageRow>(
              sortedEntries(id !== null, orderOf(query, entryColumn)),
              id === null
                ? [chatbot, chatId, limit, offsetOf(query)]
                : [chatbot, chatId, id, limit, offsetOf(query)],
            );
      return rows.pipe(
        Effect.flatMap((found) => {
          const [first] = found;
          if (first === undefined) return Effect.fail(new ChatNotFound({ chatId }));
          return Effect.succeed({
            total: Number(first.total),
            items: first.id === null ? [] : (found as ReadonlyArray<EntryRow>).map(entryOf),
          });
        }),
        orUnavailable,
      );
    },
  });
});

const toInsert = ({ helloMessage, name, userRef }: ChatToCreate) => ({
  name,
  userRef,
  entry: helloMessage === null ? null : helloEntry(helloMessage),
});

const created = ({ name, userRef }: ChatToCreate, { createTime, id }: InsertedChat): Chat => ({
  id,
  name,
  userRef,
  createTime,
});

/** Rows of a page; a page without rows is one row of nulls, because the total must survive it. */
type ChatPageRow = { readonly total: bigint | null } & (ChatRow | { readonly id: null });
type EntryPageRow = { readonly total: bigint } & (EntryRow | { readonly id: null });

const chatPage = (rows: ReadonlyArray<ChatPageRow>) => ({
  total: Number(rows[0]!.total ?? 0),
  items: rows[0]!.id === null ? [] : (rows as ReadonlyArray<ChatRow>).map(chatOf),
});

/** Rows to skip; past what int8 holds there is nothing in any case. */
const offsetOf = ({ limit, page }: ListQuery<string>): number =>
  Math.min((page - 1) * limit, Number.MAX_SAFE_INTEGER);

/**
 * Whether the order is that of positions, `true` for descending; `undefined` for any other order.
 * Ids and creation times both follow positions.
 */
const seekable = ({ orderBy }: ListQuery<string>): boolean | undefined => {
  const [{ descending, field }] = orderBy;
  return field === "id" || (field === "_createTime" && orderBy.length === 1)
    ? descending
    : undefined;
};

/** Pages of all chats, by position: the rank of the page's first row is turned into its position. */
const chatPageOf = (rank: string, from: string) => `
select tally.chats as total, page.*
from (values (1)) one
left join tally on tally.chatbot_id = $1
left join lateral (
  select case when chats = positions then ${rank} else (${positionOf(rank)}) end as position
) first on true
left join lateral (
  select ${chatColumns}, position from chat
  where chatbot_id = $1 and position ${from} limit $3::int8
) page on true
order by page.position`;
const newestChatsPage = `${chatPageOf("chats - $2::int8", "<= first.position order by position desc")} desc`;
const oldestChatsPage = chatPageOf("$2::int8 + 1", ">= first.position order by position");

const entryPageOf = (seek: string) => `
select chat.entries as total, page.*
from chat left join lateral (
  select ${entryColumns}, position from entry
  where chatbot_id = $1 and chat_id = $2::int8 and ${seek} limit $4::int8
) page on true
where chat.chatbot_id = $1 and chat.id = $2::int8
order by page.position`;
const newestEntriesPage = `${entryPageOf("position <= chat.entries - $3::int8 order by position desc")} desc`;
const oldestEntriesPage = entryPageOf("position > $3::int8 order by position");

/** A page in any order; its total counts the same rows in the same snapshot. */
const sorted = (
  table: "chat" | "entry",
  columns: string,
  where: ReadonlyArray<string>,
  parameters: number,
  order: string,
) => `
select matching.total, page.*
from (select count(*) as total from ${table} where ${where.join(" and ")}) matching
left join lateral (
  select ${columns}, row_number() over (order by ${order}) as place
  from ${table} where ${where.join(" and ")}
  order by ${order} limit $${parameters + 1}::int8 offset $${parameters + 2}::int8
) page on true
order by page.place`;

const sortedEntries = (byId: boolean, order: string) => {
  const where = ["chatbot_id = $1", "chat_id = $2::int8", ...(byId ? ["id = $3::int8"] : [])];
  return `select found.* from chat cross join lateral (${sorted("entry", entryColumns, where, byId ? 3 : 2, order)}) found
where chat.chatbot_id = $1 and chat.id = $2::int8 order by found.place`;
};

const chatColumn: Readonly<Record<ChatField, string>> = {
  id: "id",
  name: "name",
  userRef: "user_ref",
  _createTime: "create_time",
};

const entryColumn: Readonly<Record<EntryField, string>> = {
  id: "id",
  chat_id: "chat_id",
  question: "question",
  answer: "answer",
  moderation: "moderation",
  flagged: "flagged",
  _createTime: "create_time",
};

/** PostgreSQL's default puts nulls last ascending and first descending, as the contract does. */
const orderOf = <Field extends string>(
  { orderBy }: ListQuery<Field>,
  columns: Readonly<Record<Field, string>>,
): string =>
  [...orderBy, { field: "id", descending: orderBy.at(-1)!.descending }]
    .map(({ descending, field }) => {
      const column = field === "id" ? "id" : columns[field as Field];
      return `${column} ${descending ? "desc" : "asc"}`;
    })
    .join(", ");

const claimKey = `
insert into request as r (chatbot_id, key, fingerprint, made_at) values ($1, $2, $3, clock_timestamp())
on conflict (chatbot_id, key) do update set
  fingerprint = excluded.fingerprint, made_at = excluded.made_at,
  turn = null, turn_until = null, chat_id = null, entry_id = null
where r.made_at <= clock_timestamp() - interval '24 hours'
returning key`;

const settleKey = "update request set chat_id = $3::int8 where chatbot_id = $1 and key = $2";

const knownChat = `
select r.fingerprint, c.id, c.name, c.user_ref, c.create_time
from request r left join chat c on c.chatbot_id = r.chatbot_id and c.id = r.chat_id
where r.chatbot_id = $1 and r.key = $2`;
