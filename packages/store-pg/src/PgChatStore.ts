import {
  ChatNotFound,
  ChatStore,
  helloEntry,
  Overloaded,
  RetryKeyReused,
  type Chat,
  type ChatQuery,
  type ChatToCreate,
  type Created,
  type RetryKey,
  type StorageUnavailable,
} from "@parley/core";
import { Effect } from "effect";
import {
  byPosition,
  byText,
  filtered,
  found,
  indexed,
  isRemembered,
  offsetOf,
  remembered,
  seek,
  type Statement,
} from "./ChatPages.ts";
import { makeCounts, newestRemembered, type Count } from "./Counts.ts";
import { anyEntries, seekEntries } from "./EntryPages.ts";
import { gather } from "./Gather.ts";
import { insertChats, type InsertedChat } from "./InsertChats.ts";
import type { Clients } from "./Clients.ts";
import { makePasses } from "./Passes.ts";
import { forgetOldKeys, tooOld } from "./RequestKeys.ts";
import { chatOf, entryOf, type ChatRow, type EntryRow } from "./Rows.ts";
import { againAfterDeadlock, orBusy, orUnavailable } from "./Storage.ts";

/** Rows that a list may read on the way without being thought dear. */
const nearby = 10_000;

/** Rows that a search may look at one after the other before another way is quicker. */
const walk = 100_000;

export const makeChatStore = Effect.fnUntraced(function* ({ passes, reads, writes }: Clients) {
  const { pass, search } = makePasses(passes);

  const insert = yield* gather(
    (chatbot, chats: ReadonlyArray<ChatToCreate>) =>
      orBusy(insertChats(writes, chatbot, chats.map(toInsert))),
    { writers: 2, most: 500, waiting: 10_000, full: new Overloaded({ retryAfterSeconds: 2 }) },
  );

  const createOnce = (chatbot: number, chat: ChatToCreate, retryKey: RetryKey) =>
    writes.withTransaction(
      Effect.gen(function* () {
        const claimed = yield* writes.unsafe(claimKey, [
          chatbot,
          retryKey.key,
          retryKey.fingerprint,
        ]);
        if (claimed.length === 0) return yield* replay(chatbot, retryKey);
        const [made] = yield* insertChats(writes, chatbot, [toInsert(chat)]);
        yield* writes.unsafe(settleKey, [chatbot, retryKey.key, made!.id]);
        return { chat: created(chat, made!), replayed: false };
      }),
    );

  const replay = Effect.fnUntraced(function* (chatbot: number, { fingerprint, key }: RetryKey) {
    const [row] = yield* writes.unsafe<ChatRow & { readonly fingerprint: string }>(knownChat, [
      chatbot,
      key,
    ]);
    if (row === undefined || row.fingerprint !== fingerprint || row.id === null) {
      return yield* new RetryKeyReused({ key });
    }
    return { chat: chatOf(row), replayed: true };
  });

  const runSeek = ({ text, values }: Statement) => reads.unsafe<EntryPageRow>(text, values);
  const light = ({ text, values }: Statement) =>
    orUnavailable(Effect.map(reads.unsafe<ChatPageRow>(text, values), chatPage));

  const counts = makeCounts(2_000);

  /** How the chats that match are read; the count of searches and of long lists is remembered. */
  const readMatching = (
    chatbot: number,
    query: ChatQuery,
    known: Count | undefined,
  ): Effect.Effect<ReadonlyArray<ChatPageRow>, Overloaded | StorageUnavailable> => {
    const descending = byPosition(query.orderBy);
    if (descending === undefined) return pass(filtered(chatbot, query, known));
    if (query.search === null || query.search === "") {
      if (offsetOf(query) > nearby) return pass(filtered(chatbot, query, known));
      const { text, values } = filtered(chatbot, query, known, nearby);
      return Effect.flatMap(orUnavailable(reads.unsafe<ChatPageRow>(text, values)), (rows) =>
        known === undefined && Number(rows[0]!.total) > nearby
          ? pass<ChatPageRow>(filtered(chatbot, query, undefined))
          : Effect.succeed(rows),
      );
    }
    if (known === undefined) return pass(found(chatbot, query, descending));
    if (descending && isRemembered(query, known)) return search(remembered(chatbot, query, known));
    const expected = ((offsetOf(query) + query.limit) * known.reached) / (known.matching + 1);
    return expected > walk
      ? pass(found(chatbot, query, descending))
      : search(filtered(chatbot, query, known));
  };

  const matching = Effect.fnUntraced(function* (chatbot: number, query: ChatQuery) {
    const name = JSON.stringify([chatbot, query.search, query.userRef]);
    const known = counts.get(name);
    let rows = yield* readMatching(chatbot, query, known);
    // An erasure made void what was remembered.
    const isVoid = known !== undefined && (rows[0]?.total ?? null) === null;
    if (isVoid) rows = yield* readMatching(chatbot, query, undefined);
    const page = chatPage(rows);
    const { erasures, later, newest, reached } = rows[0]!;
    const before = isVoid ? null : (known?.newest ?? null);
    // A read that told nothing of the newest must not move the count on without them.
    if (newest === undefined && later === undefined && before !== null) return page;
    counts.set(name, {
      matching: page.total,
      reached: Number(reached),
      erasures: Number(erasures),
      newest:
        newest ?? (later && before && [...later, ...before].slice(0, newestRemembered)) ?? null,
    });
    return page;
  });

  return ChatStore.of({
    createChat: (chatbot, chat, retryKey) =>
      retryKey === null
        ? Effect.map(insert(chatbot, chat), (made): Created => ({
            chat: created(chat, made),
            replayed: false,
          }))
        : orBusy(againAfterDeadlock(createOnce(chatbot, chat, retryKey))),

    listChats: (chatbot, query) => {
      if (query.id !== null) return light(filtered(chatbot, query, undefined));
      const all = query.userRef === null && (query.search === null || query.search === "");
      const positions = byPosition(query.orderBy);
      if (all && positions !== undefined) return light(seek(chatbot, query, positions));
      const text = byText(query.orderBy);
      if (all && text !== undefined) {
        return Effect.map(pass<ChatPageRow>(indexed(chatbot, query, text)), chatPage);
      }
      if (all) return Effect.map(pass<ChatPageRow>(filtered(chatbot, query, undefined)), chatPage);
      return matching(chatbot, query);
    },

    listEntries: (chatbot, chatId, query) => {
      const positions = byPosition(query.orderBy);
      const { text, values } = anyEntries(chatbot, chatId, query);
      const rows =
        query.id !== null
          ? orUnavailable(reads.unsafe<EntryPageRow>(text, values))
          : positions === undefined
            ? pass<EntryPageRow>({ text, values })
            : orUnavailable(runSeek(seekEntries(chatbot, chatId, query, positions)));
      return Effect.flatMap(rows, (found) => {
        const [first] = found;
        if (first === undefined) return Effect.fail(new ChatNotFound({ chatId }));
        return Effect.succeed({
          total: Number(first.total),
          items: first.id === null ? [] : (found as ReadonlyArray<EntryRow>).map(entryOf),
        });
      });
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
type ChatPageRow = {
  readonly total: bigint | null;
  readonly reached?: bigint;
  readonly erasures?: bigint;
  /** Positions of the newest that match, descending. */
  readonly newest?: ReadonlyArray<bigint>;
  /** The same, but only of those after the remembered ones. */
  readonly later?: ReadonlyArray<bigint>;
} & (ChatRow | { readonly id: null });
type EntryPageRow = { readonly total: bigint } & (EntryRow | { readonly id: null });

const chatPage = (rows: ReadonlyArray<ChatPageRow>) => ({
  total: Number(rows[0]!.total ?? 0),
  items: rows[0]!.id === null ? [] : (rows as ReadonlyArray<ChatRow>).map(chatOf),
});

const claimKey = `
with forgotten as (${forgetOldKeys})
insert into request as r (chatbot_id, key, fingerprint, made_at) values ($1, $2, $3, clock_timestamp())
on conflict (chatbot_id, key) do update set
  fingerprint = excluded.fingerprint, made_at = excluded.made_at,
  turn = null, turn_until = null, chat_id = null, entry_id = null
where r.made_at <= ${tooOld}
  or (r.chat_id is null and r.entry_id is null and r.turn_until <= clock_timestamp())
returning key`;

const settleKey = "update request set chat_id = $3::int8 where chatbot_id = $1 and key = $2";

const knownChat = `
select r.fingerprint, c.id, c.name, c.user_ref, c.create_time
from request r left join chat c on c.chatbot_id = r.chatbot_id and c.id = r.chat_id
where r.chatbot_id = $1 and r.key = $2`;
