/**
 * Makes chats. Those of one chatbot wait for one another, at its chat_counter: here, so that no crowd of one chatbot takes the
 * connections that all share. Those that arrive together are made together.
 */
import { Effect } from "effect";
import type { Clients } from "./Clients.ts";
import { gather } from "./Gather.ts";
import { insertChats, type ChatToInsert, type InsertedChat } from "./InsertChats.ts";
import { array, big } from "./Parameters.ts";
import { claimKeys, lockKeys, settleKeys } from "./RequestKeys.ts";
import type { ChatRow } from "./Rows.ts";
import { againAfterClash, busy, orBusy, orChatbotNotFound } from "./Storage.ts";

export interface ChatToMake extends ChatToInsert {
  readonly retryKey: KeyToTake | null;
}

/** With it a chat is made once: by who claims the key, or in the turn of an ask that did. */
interface KeyToTake {
  readonly key: string;
  readonly fingerprint: string;
  readonly turn: string | null;
}

interface Keyed extends ChatToMake {
  readonly retryKey: KeyToTake;
}

export interface Made {
  /** `null` if its key is another's. */
  readonly chat: InsertedChat | null;
  /** What is known of that key, read while it was locked: no erasure came between. */
  readonly known: KnownKey | undefined;
}

type KnownKey = { readonly fingerprint: string } & (ChatRow | { readonly id: null });

/** Chats that are made at a time, and that wait at most. */
const [most, waiting] = [200, 10_000];

/** Milliseconds that one waits in a line of which a write fails: as long as for a lock. */
const patience = 2_000;

const isKeyed = (chat: ChatToMake): chat is Keyed => chat.retryKey !== null;

/** An ask's turn is its own, while many have a key. */
const nameOf = ({ key, turn }: Pick<KeyToTake, "key" | "turn">) => turn ?? key;

/** The first of each name, in the order of the keys: in which all take them, so that nobody waits for one another. */
const firstOf = (chats: ReadonlyArray<Keyed>): ReadonlyArray<Keyed> =>
  [...new Map(chats.toReversed().map((chat) => [nameOf(chat.retryKey), chat])).values()].toSorted(
    (a, b) => (a.retryKey.key < b.retryKey.key ? -1 : 1),
  );

const keysOf = (chats: ReadonlyArray<Keyed>) =>
  array(chats, "text", ({ retryKey }) => retryKey.key);

/** Makes a chat of a chatbot, and its first entry if it has one. */
export type MakeChat = Effect.Success<ReturnType<typeof makeCreations>>;

export const makeCreations = Effect.fnUntraced(function* ({ writes }: Clients) {
  /** The rows of keys that others settled. */
  const knownOf = Effect.fnUntraced(function* (chatbot: number, chats: ReadonlyArray<Keyed>) {
    if (chats.length === 0) return new Map<string, KnownKey>();
    const rows = yield* writes.query<KnownKey & { readonly key: string }>(chatbot, knownChats, [
      chatbot,
      keysOf(chats),
    ]);
    return new Map(rows.map((row) => [row.key, row]));
  });

  /** All of them take their keys in one statement, and so in one order. */
  const makeKeyed = Effect.fnUntraced(function* (
    chatbot: number,
    chats: ReadonlyArray<Keyed>,
    { statement, value }: Taking,
  ) {
    const first = firstOf(chats);
    const rows = yield* writes.query<Pick<KeyToTake, "key" | "turn">>(
      chatbot,
      statement(first.length),
      [chatbot, keysOf(first), array(first, "text", ({ retryKey }) => value(retryKey))],
    );
    const taken = new Set(rows.map(nameOf));
    const ours = chats.filter((chat) => taken.has(nameOf(chat.retryKey)) && first.includes(chat));
    const inserted = ours.length === 0 ? [] : yield* insertChats(writes, chatbot, ours);
    const made = new Map(ours.map((chat, n) => [chat, inserted[n]!]));
    if (made.size > 0) {
      yield* writes.query(chatbot, settleKeys, [
        chatbot,
        keysOf(ours),
        array(inserted, "int8", ({ id }) => big(id)),
        array(ours, "int8", (chat) =>
          chat.retryKey.turn === null ? null : big(made.get(chat)!.entryId!),
        ),
      ]);
    }
    const known = yield* knownOf(
      chatbot,
      chats.filter((chat) => chat.retryKey.turn === null && !made.has(chat)),
    );
    return chats.map((chat): Made => ({
      chat: made.get(chat) ?? null,
      known: known.get(chat.retryKey.key),
    }));
  });

  const make = yield* gather(
    (chatbot, chats: ReadonlyArray<ChatToMake>) =>
      insertChats(writes, chatbot, chats).pipe(
        againAfterClash,
        Effect.map((inserted) => inserted.map((chat): Made => ({ chat, known: undefined }))),
        orChatbotNotFound(chatbot),
        orBusy,
      ),
    { writers: 2, most, waiting, patience, full: busy },
  );
  // One whose key is locked for long is refused, and so are those that are made with it.
  const makeOnce = (taking: Taking) =>
    gather(
      (chatbot, chats: ReadonlyArray<Keyed>) =>
        writes
          .transaction(chatbot, makeKeyed(chatbot, chats, taking))
          .pipe(againAfterClash, orChatbotNotFound(chatbot), orBusy),
      { writers: 1, most, waiting, patience, full: busy },
    );
  const makeClaimed = yield* makeOnce(claiming);
  const makeAsked = yield* makeOnce(locking);
  return (chatbot: number, chat: ChatToMake) => {
    if (!isKeyed(chat)) return make(chatbot, chat);
    return chat.retryKey.turn === null ? makeClaimed(chatbot, chat) : makeAsked(chatbot, chat);
  };
});

/** How keys are taken: a statement for so many, and what it is told of each besides its name. */
interface Taking {
  readonly statement: (keys: number) => string;
  readonly value: (key: KeyToTake) => string | null;
}

const claimOne = claimKeys("null", "null");
const claimSome = claimKeys("null", "null", 2 * most);

const claiming: Taking = {
  statement: (keys) => (keys > 1 ? claimSome : claimOne),
  value: ({ fingerprint }) => fingerprint,
};

const locking: Taking = { statement: () => lockKeys, value: ({ turn }) => turn };

const knownChats = `
select r.key, r.fingerprint, c.id, c.name, c.user_ref, c.create_time
from unnest($2::text[]) wanted cross join lateral (
  select key, fingerprint, chat_id from idempotency_key where chatbot_id = $1 and key = wanted offset 0
) r left join lateral (
  select id, name, user_ref, create_time from chat where chatbot_id = $1 and id = r.chat_id offset 0
) c on true`;
